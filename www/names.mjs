// A name by which a person tells this tab from the others: "Amber fox". It is kept in sessionStorage, which belongs to
// one tab and survives its reload.
const colours = ["Amber", "Azure", "Coral", "Golden", "Indigo", "Jade", "Olive", "Rose", "Silver", "Violet"];
const animals = ["badger", "crane", "dolphin", "fox", "heron", "lynx", "otter", "owl", "raven", "tortoise"];

const any = (words) => words[Math.floor(Math.random() * words.length)];

export function tabName() {
  const kept = sessionStorage.getItem("tab-name");
  if (kept) return kept;
  const name = `${any(colours)} ${any(animals)}`;
  sessionStorage.setItem("tab-name", name);
  return name;
}
