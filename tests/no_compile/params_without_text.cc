// expect: a member has no text
#include "core/params.h"

struct Pointing {
  int axis;
  const int* to;
};
postern::internal::ParamsPtr params() { return postern::internal::make_params(Pointing{}); }
