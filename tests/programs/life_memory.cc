// An identity call of 256 MiB: at its peak the process holds one payload beside its input.
#include <postern/postern.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace pn = postern;

namespace {

/// A line of /proc/self/status, in MiB.
double status(const std::string& name) {
  std::ifstream in("/proc/self/status");
  for (std::string word; in >> word;)
    if (double kib; word == name + ":" && in >> kib) return kib / 1024;
  return 0;
}

}  // namespace

int main() {
  constexpr std::int64_t mib = 256, n = mib * 1024 * 1024 / 4;
  auto identity = pn::jit([](pn::Tensor x) {
    return pn::call(
        x.type(),
        [](pn::View<const float> in, pn::View<float> out) {
          std::memcpy(out.data(), in.data(), std::size_t(in.size()) * 4);
        },
        x);
  });
  identity(pn::ones(pn::type<float>({16}))).block_until_ready();
  identity.compile(pn::abstract(pn::type<float>({n})));

  auto* memory = static_cast<float*>(std::aligned_alloc(64, std::size_t(n) * 4));
  std::memset(memory, 1, std::size_t(n) * 4);
  const pn::Tensor x = pn::Tensor::borrow(pn::type<float>({n}), memory, [=] { std::free(memory); });
  const double before = status("VmRSS");
  const pn::Tensor y = identity(x);
  y.block_until_ready();
  const double peak = status("VmHWM") - before;
  std::printf(
      "%.0f MiB with the input, %.0f MiB more at the peak of an identity call of %lld MiB\n",
      before, peak, static_cast<long long>(mib));
  return peak > 0.9 * double(mib) && peak < 1.1 * double(mib) ? 0 : 1;
}
