// The login page: sends the form, or the secret of a one-time link, which no server and no log gets by its address.
'use strict';

const form = document.getElementById('login');
const refusal = document.getElementById('refusal');

// Where to go then: a page of the console and of nothing else.
function next() {
  const target = new URLSearchParams(location.search).get('next') || '/console/';
  const url = new URL(target, location.origin);
  return url.origin === location.origin && url.pathname.startsWith('/console/') ? url.href : '/console/';
}

async function send(proof) {
  refusal.textContent = '';
  const button = form.querySelector('button');
  button.disabled = true;
  try {
    const answer = await fetch('/console/login', {
      method: 'POST',
      credentials: 'same-origin',
      headers: {'Content-Type': 'application/json'},
      body: JSON.stringify({...proof, csrf: form.dataset.csrf}),
    });
    if (answer.ok) {
      location.replace(next());
      return;
    }
    const problem = await answer.json();
    refusal.textContent = problem.detail || problem.title;
    // Where it can be typed anew: a button that was disabled has lost the focus.
    form.elements[proof.link ? 'user' : 'password'].select();
  } catch (error) {
    refusal.textContent = 'The server does not answer: try again.';
  } finally {
    button.disabled = false;
  }
}

form.addEventListener('submit', (event) => {
  event.preventDefault();
  send({user: form.elements.user.value, password: form.elements.password.value});
});

function follow() {
  const secret = location.hash.slice(1);
  if (secret) {
    // Out of the address and of the history before anything else happens.
    history.replaceState(null, '', location.pathname + location.search);
    send({link: secret});
  }
}

follow();
// A link that is opened where this page is already shown loads nothing.
window.addEventListener('hashchange', follow);
