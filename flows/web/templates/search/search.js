document.documentElement.dataset.open = "";
