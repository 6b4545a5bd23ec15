// Reloads the page of a running run until the run stops writing it.
{
  const state = document.getElementById('live');
  const { writtenMs, patienceS, reloadS } = state.dataset;
  const silentS = Math.round((Date.now() - Number(writtenMs)) / 1000);
  if (silentS <= Number(patienceS)) {
    setTimeout(() => location.reload(), Number(reloadS) * 1000);
  } else {
    state.textContent = `The run has not written for ${silentS} s, so this page stopped reloading: the `
      + 'run was ended early, or a trial takes long. Below is what it last wrote. Reload the page to look again.';
  }
}
