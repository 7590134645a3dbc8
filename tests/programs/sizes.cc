// Sizes that no machine has: every way to ask for them ends as an Error. Usage: sizes CASE BITS
// CODE; an f32[2^BITS] is wanted, and CODE is the number of the error's code.
#include <postern/c.h>
#include <postern/postern.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>

namespace pn = postern;

namespace {

std::int64_t n = 0;

pn::Type big() { return {pn::DType::f32, {n}}; }

pn::Tensor run(pn::JitOptions options, const std::function<pn::Tensor(pn::Tensor)>& f) {
  const auto jitted = pn::jit([&](pn::Tensor x) { return f(x); }, std::move(options));
  return jitted(pn::Tensor(1.0f)).block_until_ready();
}

pn::Tensor called(const pn::CallOptions& options, const pn::Tensor& x) {
  return pn::call(
      options, big(), [](pn::View<const float>, pn::View<float>) {}, x);
}

alignas(64) float few[16];

/// As if somebody had so much.
pn::Tensor borrowed() { return pn::Tensor::borrow(big(), few, {}); }

void by_c(bool borrow) {
  const std::int64_t dims[] = {n};
  const pn_array array{PN_F32, 1, dims, few, static_cast<std::size_t>(n) * 4};
  pn_tensor* out = nullptr;
  const int code =
      borrow ? pn_tensor_borrow(&array, nullptr, nullptr, &out) : pn_tensor_copy(&array, &out);
  pn_tensor_free(out);
  if (code != PN_OK) throw pn::Error(static_cast<pn::ErrorCode>(code), pn_last_error());
}

/// Of no elements, whose other axis is as long.
pn::Tensor empty() { return pn::Tensor({pn::DType::f32, {n, 0}}, few); }

const std::map<std::string, std::function<void()>> cases = {
    {"empty", [] { empty(); }},
    {"empty_borrowed",
     [] {
       pn::Tensor::borrow({pn::DType::f32, {0, n}}, few, {});
     }},
    {"empty_zeros",
     [] {
       pn::zeros({pn::DType::f32, {n, 0}}).block_until_ready();
     }},
    {"empty_at_once", [] { (empty() + empty()).block_until_ready(); }},
    {"empty_run", [] { pn::jit([](pn::Tensor x) { return x + x; })(empty()).block_until_ready(); }},
    {"empty_widened",  // from a dtype of which there could be so many
     [] {
       pn::convert(pn::Tensor({pn::DType::s8, {n, 0}}, few), pn::DType::f32).block_until_ready();
     }},
    {"empty_grown",
     [] {
       pn::jit([](pn::Tensor x) {
         return pn::broadcast_to(pn::expand_dims(x, 0), {n, 0});
       })(pn::Tensor(pn::type<float>({0}), few))
           .block_until_ready();
     }},
    {"type", [] { pn::type<float>({n}); }},
    {"squared",
     [] {
       pn::type<float>({n, n, 0});
     }},
    {"made", [] { pn::Tensor(big(), few); }},
    {"borrowed", [] { borrowed(); }},
    {"full", [] { pn::full(big(), 1.0f).block_until_ready(); }},
    {"iota", [] { pn::iota<float>(n).block_until_ready(); }},
    {"abstract", [] { (void)pn::abstract(big()); }},
    {"result", [] { run({}, [](pn::Tensor x) { return pn::broadcast_to(x, {n}) * 2.0f; }); }},
    {"temporary",
     [] {
       run({}, [](pn::Tensor x) {
         const pn::Tensor y = pn::sort(pn::broadcast_to(x, {n}) + pn::iota<float>(n));
         return y * pn::sum(y);
       });
     }},
    {"used", [] { (borrowed() + 1.0f).block_until_ready(); }},
    {"call", [] { run({}, [](pn::Tensor x) { return called({}, x); }); }},
    {"call_limited",
     [] { run({}, [](pn::Tensor x) { return called({.timeout = std::chrono::seconds(9)}, x); }); }},
    {"call_staged",
     [] { run({.mode = pn::Mode::staged}, [](pn::Tensor x) { return called({}, x); }); }},
    {"call_at_once", [] { called({}, pn::Tensor(1.0f)); }},
    {"concatenated",
     [] {
       pn::jit([](pn::Tensor x) {
         return pn::concatenate({x, x, x, x, x, x, x, x}, 0);
       }).program(pn::abstract(big()));
     }},
    {"padded",
     [] {
       pn::jit([](pn::Tensor x) {
         return pn::pad(x, 0.0f, {n}, {n}, {n});
       }).program(pn::abstract(pn::type<float>({4})));
     }},
    {"tiled",
     [] { pn::jit([](pn::Tensor x) {
            return pn::tile(x, {n, n});
          }).program(pn::Tensor(1.0f)); }},
    {"c_copy", [] { by_c(false); }},
    {"c_borrow", [] { by_c(true); }},
};

}  // namespace

int main(int, char** argv) {
  n = std::int64_t{1} << std::atoi(argv[2]);
  int code = 0;
  try {
    cases.at(argv[1])();
  } catch (const pn::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    code = static_cast<int>(e.code());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "not an Error: %s\n", e.what());
    return 2;
  }
  if (code == std::atoi(argv[3])) return 0;
  std::fprintf(stderr, "code %d\n", code);
  return 1;
}
