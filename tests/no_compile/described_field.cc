// expect: must list every member
#include "core/described.h"

struct Forgotten {
  int kept;
  bool lost;
};
template <>
struct postern::internal::Described<Forgotten> {
  static constexpr auto fields = std::tuple(postern::internal::field("kept", &Forgotten::kept));
};
void tell(postern::internal::FieldSink& sink) { postern::internal::tell_fields(Forgotten{}, sink); }
