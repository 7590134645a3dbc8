// expect: must tell each member, or say that it is left_out
#include "core/params.h"

struct Forgetful {
  int axis;
  bool reverse;
  auto fields(postern::internal::Fields sink) const { return sink.field("axis", axis); }
};
postern::internal::ParamsPtr params() { return postern::internal::make_params(Forgetful{0, true}); }
