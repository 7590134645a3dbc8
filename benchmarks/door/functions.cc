// What the programs of python_door.py call: a function of Postern's, and a bare handler of XLA's.
#include <postern/postern.h>

#include "pjrt/ffi_frame.h"

namespace pn = postern;

namespace {

void next(pn::View<const float> x, pn::View<float> y) { y[0] = x[0] + 1; }

/// About a microsecond of work.
void work(pn::View<const float> x, pn::View<float> y) {
  float v = x[0];
  for (int i = 0; i < 300; ++i) v = v * 0.999f + 0.001f;
  y[0] = v;
}

void load() {
  pn::register_function("bench.next", next);
  pn::register_function("bench.work", work);
}

}  // namespace

POSTERN_LIBRARY("bench_door", "1.0", load)

extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* bare_next(
    XLA_FFI_CallFrame* frame) {
  if (frame->extension_start && pn::internal::pjrt::answer_metadata(frame)) return nullptr;
  *static_cast<float*>(pn::internal::pjrt::results(frame)[0]->data) =
      *static_cast<const float*>(pn::internal::pjrt::operands(frame)[0]->data) + 1;
  return nullptr;
}
