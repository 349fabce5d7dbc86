import rebalance.core.guarded_write as g
from tests.simulation.test_seeds import Simulation, first_broken

g.guards_of = lambda *r: ()
for s in range(0, 40):
    print(s, first_broken(Simulation(s, nodes=6, partitions=24, events=25), seeds=1), flush=True)
