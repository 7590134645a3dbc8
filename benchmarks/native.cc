// Programs as functions of the caller's memory, beside the C API in the same hands.
#include <postern/postern.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bare.h"
#include "harness.h"

namespace bench {

namespace pn = postern;

namespace {

std::string text_of(std::int64_t n) {
  const std::string t = "tensor<" + std::to_string(n) + "xf64>";
  return "module { func.func public @main(%x: " + t + ") -> " + t +
         " {\n%y = stablehlo.add %x, %x : " + t + "\nreturn %y : " + t + "\n} }";
}

/// Of so many numbers, aligned to 64 bytes.
class Memory {
 public:
  explicit Memory(std::int64_t count) : all_(static_cast<std::size_t>(count) + 8) {
    void* at = all_.data();
    std::size_t room = all_.size() * sizeof(double);
    begin_ = std::align(64, static_cast<std::size_t>(count) * sizeof(double), at, room);
  }
  void* data() { return begin_; }

 private:
  std::vector<double> all_;
  void* begin_;
};

void by_size(Report& report, const std::string& name, std::int64_t n) {
  const pn::Native f = pn::native(pn::load_text(text_of(n)));
  Bare kept(text_of(n)), given(text_of(n));
  Memory x(n), y(n);
  kept.set_argument(pn::DType::f64, std::vector{n}, x.data());
  const std::size_t bytes = static_cast<std::size_t>(n) * sizeof(double);
  const auto ns =
      race({[&](std::int64_t times) {
              const void* const in[] = {x.data()};
              void* const out[] = {y.data()};
              while (times-- > 0) f(in, out);
            },
            [&](std::int64_t times) { kept.run(times); },
            [&](std::int64_t times) { kept.run_copying(x.data(), y.data(), bytes, times); },
            [&](std::int64_t times) {
              given.run_on(pn::DType::f64, std::vector{n}, x.data(), y.data(), times);
            }},
           25);
  report.add({name, ns[0] / 1e3, "us", "pjrt, copying", ns[2] / 1e3,
              "x + x on f64, from and to the caller's memory; 1.10 is the aim"});
  report.add({name, ns[0] / 1e3, "us", "pjrt, the run alone", ns[1] / 1e3,
              "the same beside a raw run whose numbers nobody brings or takes"});
  report.add({name, ns[0] / 1e3, "us", "pjrt, by its functions", ns[3] / 1e3,
              "the same beside BufferFromHostBuffer and ToHostBuffer"});
}

void by_threads(Report& report) {
  const pn::Native f = pn::native(
      pn::value_and_grad([](pn::Tensor x) { return pn::sum(x * x * x); }), pn::type<double>({8}));
  const auto work = [&](std::int64_t times) {
    double x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, value = 0, slope[8];
    const void* const in[] = {x};
    void* const out[] = {&value, slope};
    while (times-- > 0) f(in, out);
  };
  const auto ns = race({work,
                        [&](std::int64_t times) {
                          std::thread other(work, times);
                          work(times);
                          other.join();
                        }},
                       15, 40);
  report.add({"native/value_and_grad", ns[0] / 1e3, "us", "", 0, "of f64[8], by one thread"});
  report.add({"native/threads/2", 2 * ns[0] / ns[1], "times one thread", "", 0,
              "as much gets done; 1.8 is the aim on two cores"});
}

}  // namespace

void native(Report& report) {
  by_size(report, "native/f64[8]", 8);
  by_size(report, "native/f64[4096]", 4096);
  by_size(report, "native/f64[1Mi]", 1 << 20);
  by_threads(report);
}

}  // namespace bench
