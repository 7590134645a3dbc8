// Loads the plug-in and compares its kernel with the default: values and gradients, f32 and bf16,
// causal and not, odd lengths.
#include <cmath>
#include <iostream>
#include <sstream>

#include "attention.h"

namespace pn = postern;

namespace {

double difference(const pn::Tensor& a, const pn::Tensor& b) {
  return pn::max(pn::abs(pn::convert(a, pn::DType::f32) - pn::convert(b, pn::DType::f32)))
      .item<float>();
}

struct Case {
  std::int64_t heads, length, depth;
  pn::DType dtype;
  bool causal;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const bool causal : {false, true})
    for (const pn::DType dtype : {pn::DType::f32, pn::DType::bf16})
      for (const auto& [heads, length, depth] :
           {std::array<std::int64_t, 3>{1, 1, 4}, {2, 64, 16}, {3, 77, 33}, {1, 257, 64}})
        cases.push_back({heads, length, depth, dtype, causal});
  return cases;
}

/// Output and the cotangents of q, k and v.
using Measured = std::array<pn::Tensor, 4>;

Measured measured(pn::Tensor q, pn::Tensor k, pn::Tensor v, const Attention& config) {
  auto loss = [config](pn::Tensor x, pn::Tensor y, pn::Tensor z) {
    const pn::Tensor out = attention(config, x, y, z);
    return std::pair{pn::sum(pn::square(pn::convert(out, pn::DType::f32))), out};
  };
  const auto [value, slopes] = pn::value_and_grad<0, 1, 2>(loss)(q, k, v);
  return {value.second, std::get<0>(slopes), std::get<1>(slopes), std::get<2>(slopes)};
}

/// All heads in one call, or one head at a time under vmap.
Measured run(const Case& c, bool mapped = false) {
  const auto keys = pn::random::split(pn::random::key(7), 3);
  auto draw = [&](int i) {
    return pn::convert(pn::random::normal(pn::dynamic_index(keys, i),
                                          pn::type<float>({c.heads, c.length, c.depth})),
                       c.dtype);
  };
  const Attention config{c.causal, 1 / std::sqrt(static_cast<double>(c.depth))};
  auto f = [config](pn::Tensor q, pn::Tensor k, pn::Tensor v) { return measured(q, k, v, config); };
  return mapped ? pn::jit(pn::vmap(f))(draw(0), draw(1), draw(2))
                : pn::jit(f)(draw(0), draw(1), draw(2));
}

bool check(bool ok, const std::string& what) {
  std::cout << (ok ? "ok     " : "FAILED ") << what << "\n";
  return ok;
}

/// Nothing of the default is left: no matrix of scores, neither forward nor backward.
bool only_kernels() {
  const pn::Tensor x = pn::abstract(pn::type<float>({2, 8, 4}));
  auto f = pn::jit([](pn::Tensor q, pn::Tensor k, pn::Tensor v) { return measured(q, k, v, {}); });
  const std::string text = f.lower(x, x, x).stablehlo();
  return text.find("example_attention_with_lse") != std::string::npos &&
         text.find("example_attention_backward") != std::string::npos &&
         text.find("dot_general") == std::string::npos;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: check PLUGIN.so\n";
    return 2;
  }
  const std::vector<Case> cases = all_cases();
  std::vector<Measured> expected;
  for (const Case& c : cases) expected.push_back(run(c));

  const pn::LibraryInfo library = pn::load_library(argv[1]);
  std::cout << "loaded " << library.name << " " << library.version << " with "
            << library.handlers.size() << " handlers\n";
  const pn::Type type{pn::DType::f32, {1, 8, 4}};
  const pn::BlockPath path = pn::block_path(Attention{}, {type, type, type});
  bool ok = check(path.kind == pn::BlockPath::Kind::native, path.text);
  ok &= check(only_kernels(), "the gradient is made of kernels");

  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    double worst = 0;
    for (const bool mapped : {false, true}) {
      const Measured native = run(c, mapped);
      for (std::size_t j = 0; j < native.size(); ++j)
        worst = std::max(worst, difference(native[j], expected[i][j]));
    }
    std::ostringstream what;
    what << c.heads << " heads, length " << c.length << ", depth " << c.depth << ", "
         << to_string(c.dtype) << (c.causal ? ", causal" : "") << ": differs by " << worst;
    ok &= check(worst <= (c.dtype == pn::DType::bf16 ? 0.06 : 2e-4), what.str());
  }
  return ok ? 0 : 1;
}
