// expect: must list every member
#include "core/described.h"

struct Forgotten {
  int kept;
  bool lost;
};
template <>
struct postern::Described<Forgotten> {
  static constexpr auto fields = std::tuple(postern::field("kept", &Forgotten::kept));
};
void tell(postern::FieldSink& sink) { postern::tell_fields(Forgotten{}, sink); }
