// expect: deleted
#include <postern/postern.h>

postern::Attributes attributes() { return {{"axes", {65, 66}}}; }  // a list, or the text "AB"?
