// A list of the published versions, above the table of contents. versions.json lies beside the folders of
// the versions (tools/publish_docs.py); where there is none, as in a site that was only built, nothing is added.
document.addEventListener("DOMContentLoaded", async () => {
  const page = document.documentElement.dataset.content_root || "./";
  const top = new URL(page, window.location.href); // the folder of this version
  if (!top.protocol.startsWith("http")) return;
  let versions;
  try {
    const answer = await fetch(new URL("../versions.json", top));
    if (!answer.ok) return;
    versions = await answer.json();
  } catch {
    return;
  }
  const current = top.pathname.split("/").filter(Boolean).pop();
  if (!versions.includes(current)) return;
  const list = document.createElement("select");
  list.id = "versions";
  list.setAttribute("aria-label", "Version of the documentation");
  for (const version of versions) {
    list.add(new Option(version, version, false, version === current));
  }
  list.addEventListener("change", () => {
    window.location.href = new URL(`../${list.value}/index.html`, top).href;
  });
  const place = document.querySelector(".sidebar-brand") || document.body.firstElementChild;
  place.insertAdjacentElement("afterend", list);
});
