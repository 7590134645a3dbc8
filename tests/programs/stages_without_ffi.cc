// With a plug-in whose programs cannot call back: they are staged, unless that is refused.
#include <postern/linalg.h>
#include <postern/postern.h>

#include <cmath>
#include <cstdio>

namespace pn = postern;

int failures = 0;
void expect(bool ok, const char* what) {
  if (ok) return;
  std::printf("wrong: %s\n", what);
  ++failures;
}

pn::Tensor twice(pn::Tensor x) {
  return pn::call(
      {.name = "twice"}, x.type(), [](float v) { return 2 * v; }, x);
}

int main() {
  pn::configure({.cpu_devices = 2});
  auto f = pn::jit([](pn::Tensor x) {
    pn::print("loss {}", x * 2.5f);
    return pn::fori_loop(
        0, 3, [](pn::Tensor, pn::Tensor v) { return twice(v); }, x);
  });
  expect(f(pn::Tensor(1.0f)).item<float>() == 8, "a loop with calls");
  expect(f.stages(pn::Tensor(1.0f)).size() == 3, "stages");
  expect(pn::jit([](pn::Tensor x) { return x + 1.0f; })(pn::Tensor(1.0f)).item<float>() == 2,
         "a program without calls");
  expect(pn::jit([](pn::Tensor x) { return x + 1.0f; }).stages(pn::Tensor(1.0f)).size() == 1,
         "it is one stage");
  const auto sine = pn::jit([](pn::Tensor x) { return pn::sin(x); });
  const int last = static_cast<int>(pn::devices().size()) - 1;
  auto there =
      pn::jit([&](pn::Tensor x) { return pn::call({.device = last}, x, sine, x * 2.0f) + 1.0f; });
  expect(std::abs(there(pn::Tensor(1.0f)).item<float>() - std::sin(2.0f) - 1) < 1e-5f,
         "a compiled function on another device");
  const auto loss = [](pn::Tensor x) {
    return pn::sum(pn::tap(x * x, [](pn::View<const float>) {}));
  };
  const std::vector<float> slope =
      pn::jit(pn::grad(loss))(pn::tensor<float>({1, 2, 3})).to_vector<float>();
  expect(slope == std::vector<float>{2, 4, 6}, "a derivative");
  const pn::Tensor l = pn::linalg::cholesky(pn::eye(pn::DType::f32, 2, 2) * 4.0f);
  expect(l.to_vector<float>()[0] == 2, "a block takes its default");
  const pn::Executable ready = pn::jit(twice).compile(pn::Tensor(1.0f));
  expect(ready.temporary_bytes() == -1, "compiled before it runs, in stages");
  try {
    static_cast<void>(ready.optimized());
    expect(false, "one text of stages");
  } catch (const pn::Error& e) {
    expect(e.code() == pn::ErrorCode::unimplemented, "says that it runs in stages");
  }
  try {
    pn::jit(twice, {.mode = pn::Mode::compiled})(pn::Tensor(1.0f));
    expect(false, "compiled whole");
  } catch (const pn::Error& e) {
    std::printf("%s: %s\n", pn::to_string(e.code()), e.what());
  }
  pn::barrier();
  std::printf("on %s, calls back: %d\n", pn::plugin_info().platform.c_str(),
              pn::plugin_info().calls_back);
  return failures;
}
