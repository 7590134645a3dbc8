// expect: must tell each member, or say that it is left_out
#include "core/params.h"

struct Forgetful {
  int axis;
  bool reverse;
  auto fields(postern::Fields sink) const { return sink.field("axis", axis); }
};
postern::ParamsPtr params() { return postern::make_params(Forgetful{0, true}); }
