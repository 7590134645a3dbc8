// expect: brace-enclosed initializer list
#include <postern/postern.h>

postern::Attributes attributes() { return {{"axes", {"a", 2}}}; }
