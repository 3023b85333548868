// A context that has neither window nor document, and says so to whoever as much as looks.
import "./no-dom.mjs";
import "./context.mjs";
