// expect: 'c'
#include <postern/postern.h>

postern::Attributes attributes() { return {{"letter", 'c'}}; }
