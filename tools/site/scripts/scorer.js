// The order of what a search finds: the lesson that defines the word, the glossary, lessons, other pages, the package.

const DEFINED = {/* defined */}; // {term of the glossary: page of the lesson that defines it}, filled in by build.py

var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 0, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score([page, , , , score]) {
    const asked = (new URLSearchParams(location.search).get("q") ?? "").trim().toLowerCase();
    const lesson = DEFINED[asked] ?? DEFINED[asked.replace(/s$/, "")];
    if (page === lesson) return score + 300;
    if (lesson && page === "docs/glossary") return score + 200;
    return score + (page.startsWith("notebooks/") ? 100 : page.startsWith("reference/") ? 0 : 50);
  },
};
