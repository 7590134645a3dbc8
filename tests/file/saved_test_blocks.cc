// Blocks in saved programs: they stay blocks, and whoever loads the file may have something better
// for them.
#include <array>

#include "saved_test.h"

namespace postern::test {
using namespace internal;
namespace {

using Floats = std::vector<float>;

enum class Way : std::uint8_t { up, down };

/// A config with a field of each kind.
struct Affine {
  static constexpr std::string_view name = "saved_affine";
  double factor = 1;
  std::int32_t add = 0;
  bool negate = false;
  Way way = Way::up;
  DType dtype = DType::f32;
  std::string note = {};
  std::vector<double> weights = {};
  std::array<std::int64_t, 2> pair = {};
  std::vector<bool> flags = {};
  bool operator==(const Affine&) const = default;
};
const Affine full{2.5,           -3,
                  true,          Way::down,
                  DType::bf16,   "a \"note\"\n// of text",
                  {1e-300, 0.1}, {7, -9007199254740993},
                  {true, false}};

/// Of the name of one of the library, and of other types.
struct Forged {
  static constexpr std::string_view name = linalg::Cholesky::name;
  linalg::Failure failure = linalg::Failure::nan;
};

struct Outer {
  static constexpr std::string_view name = "saved_outer";
};

Tensor affine(const Tensor& x, const Affine& config) {
  return block(
      config, [](const Affine& c, Tensor v) { return v * c.factor + static_cast<float>(c.add); },
      x);
}

class SavedBlocks : public testing::Test {
 protected:
  /// Gives what the default does not, so that one sees who was at work.
  OverrideHandle override_affine(std::optional<VmapMethod> batch = {}) {
    return override_block<Affine>(
        {.kernel =
             [this](const Affine& c, View<const float> in, View<float> out) {
               ++fired;
               got = c;
               for (std::int64_t i = 0; i < in.size(); ++i)
                 out[i] = in[i] * static_cast<float>(c.factor) + 100;
             },
         .batch = batch});
  }
  template <class F, class... X>
  Loaded kept(F f, const X&... like) {
    return load_text(saved_text(jit(f).lower(like...)));
  }

  std::atomic<int> fired{0};
  Affine got;
  Tensor x = tensor<float>({1, 2, 3});
};

TEST_F(SavedBlocks, TakeLapackWhereTheyAreLoaded) {
  RecordProperty("covers", "IR-10 LINALG-09");
  const Tensor a =
      matmul(reshape(iota<float>(9), {3, 3}), transpose(reshape(iota<float>(9), {3, 3}))) +
      eye<float>(3);
  const Loaded saved = kept(
      [](Tensor m) {
        return std::pair{linalg::cholesky(m), linalg::det(m)};
      },
      a);
  EXPECT_TRUE(saved.sites().empty()) << "the file needs nothing";
  EXPECT_EQ(saved(a).at(0).to_vector<float>(), linalg::cholesky(a).to_vector<float>())
      << "to the bit";
  EXPECT_EQ(saved(a).at(1).item<float>(), linalg::det(a).item<float>());
  const OverrideHandle handles[] = {keep_default<linalg::Cholesky>(), keep_default<linalg::Lu>()};
  const Loaded again = load_text(saved_text(jit([](Tensor m) {
                                              return std::pair{linalg::cholesky(m), linalg::det(m)};
                                            }).lower(a)));
  const auto by_default = again(a).at(0).to_vector<float>(),
             native = saved(a).at(0).to_vector<float>();
  for (std::size_t i = 0; i < native.size(); ++i) EXPECT_NEAR(by_default[i], native[i], 1e-3f);
  for (const auto& h : handles) h.remove();
}

TEST_F(SavedBlocks, GiveTheirConfigToAnOverrideOfWhoeverLoads) {
  if (skipped_in_stages("kernels are custom calls")) return;
  RecordProperty("covers", "BLOCK-01 IR-13");
  const Loaded plain = kept([](Tensor v) { return affine(v, full); }, x),
               native = kept([](Tensor v) { return affine(v, full); }, x);
  EXPECT_EQ(plain(x).at(0).to_vector<float>(), (Floats{-0.5, 2, 4.5}))
      << "nobody overrides: the default";
  const auto handle = override_affine();
  EXPECT_EQ(native(x).at(0).to_vector<float>(), (Floats{102.5, 105, 107.5}))
      << "chosen when it first runs";
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(got, full);
  EXPECT_EQ(plain(x).at(0).to_vector<float>(), (Floats{-0.5, 2, 4.5})) << "what is compiled stays";
  handle.remove();
  const auto declines = override_block<Affine>(
      {.when = [](const Affine& c, std::span<const Type>) { return c.factor > 3; },
       .kernel = [](View<const float>, View<float>) { throw std::runtime_error("asked for"); }});
  EXPECT_EQ(kept([](Tensor v) { return affine(v, full); }, x)(x).at(0).to_vector<float>(),
            (Floats{-0.5, 2, 4.5}));
  declines.remove();
  const auto target =
      override_block<Affine>({.program = [](const Affine&, std::span<const Tensor> v) {
        return std::vector<Tensor>{-v[0]};
      }});
  EXPECT_EQ(kept([](Tensor v) { return affine(v, full); }, x)(x).at(0).to_vector<float>(),
            (Floats{-1, -2, -3}));
  target.remove();
}

TEST_F(SavedBlocks, InLoopsBranchesBatchesAndBlocks) {
  if (skipped_in_stages("kernels are custom calls")) return;
  auto program = [](Tensor v) {
    v = fori_loop(
        0, 3, [](Tensor, Tensor c) { return affine(c, {.factor = 0.5}); }, v);
    v = cond(
        sum(v) > 0.0f, [](Tensor c) { return affine(c, {.factor = 2}); },
        [](Tensor c) { return c; }, v);
    return block(
        Outer{}, [](Tensor c) { return affine(affine(c, {.factor = 4}), {.factor = 0.25}); }, v);
  };
  EXPECT_EQ(kept(program, x)(x).at(0).to_vector<float>(), (Floats{0.25, 0.5, 0.75}));
  const Tensor rows = reshape(iota<float>(6), {2, 3});
  const auto mapped = [&](Tensor m) { return vmap(program)(m); };
  const Floats want = jit(mapped)(rows).to_vector<float>();
  const auto handle = override_affine(VmapMethod::sequential);
  EXPECT_EQ(kept(program, x)(x).at(0).to_vector<float>(), jit(program)(x).to_vector<float>());
  EXPECT_EQ(fired, 2 * 6);
  fired = 0;
  EXPECT_EQ(kept(mapped, rows)(rows).at(0).to_vector<float>(),
            jit(mapped)(rows).to_vector<float>());
  EXPECT_GT(fired, 0);
  EXPECT_NE(jit(mapped)(rows).to_vector<float>(), want);
  handle.remove();
  EXPECT_EQ(kept(mapped, rows)(rows).at(0).to_vector<float>(), want);
}

TEST_F(SavedBlocks, KeepTheirDerivatives) {
  if (skipped_in_stages("kernels are custom calls")) return;
  // A block that gives its default's tangents or residuals too: its own results may come from an
  // override.
  const auto f = [](Tensor v) {
    return sum(block(
        Affine{.factor = 3}, [](Tensor c) { return sin(c) * c; }, v));
  };
  const auto program = [&](Tensor v) { return value_and_grad(f)(v); };
  const auto [value, slope] = jit(program)(x);
  const Loaded plain = kept(program, x);
  EXPECT_EQ(plain(x).at(0).item<float>(), value.item<float>());
  EXPECT_EQ(plain(x).at(1).to_vector<float>(), slope.to_vector<float>());
  const auto handle = override_affine();
  const Loaded native = kept(program, x);
  EXPECT_EQ(native(x).at(0).item<float>(), 3 * 6 + 300);
  EXPECT_EQ(native(x).at(1).to_vector<float>(), slope.to_vector<float>());
  handle.remove();
}

TEST_F(SavedBlocks, WithTapsInTheirDefaultsAreWhatTheyAreMadeOf) {
  Floats seen;
  register_function("saved.seen", [&](float v) { seen.push_back(v); }, {.replace = true});
  const auto program = [](Tensor v) {
    return block(
        Affine{.factor = 2},
        [](Tensor c) { return tap({.name = "inside"}, c * 2.0f, Named{"saved.seen"}); }, sum(v));
  };
  const Loaded saved = kept(program, x);
  EXPECT_EQ(saved.sites().size(), 1u);
  EXPECT_EQ(saved(x).at(0).item<float>(), 12);
  barrier();
  EXPECT_EQ(seen, Floats{12});
  unregister_function("saved.seen");
}

TEST_F(SavedBlocks, ThatAreForgedAreRefused) {
  if (skipped_in_stages("kernels are custom calls")) return;
  const std::string text = saved_text(
      jit(vmap([](Tensor v) { return affine(v, full); })).lower(reshape(iota<float>(6), {2, 3})));
  const auto handle = override_affine(VmapMethod::sequential);
  const auto head = text.find("// block ");
  auto forged = [&](const std::string& part, const std::string& other) {
    return load_text(summed(text.substr(0, head) + replaced(text.substr(head), part, other)));
  };
  const Tensor rows = reshape(iota<float>(6), {2, 3});
  EXPECT_EQ(forged("saved_affine", "saved_affine")(rows).at(0).to_vector<float>()[0], 100);
  for (const auto& [part, other] : std::vector<std::pair<std::string, std::string>>{
           {R"("begin":)", R"("begin":1)"},
           {R"("begin":)", R"("begin":-)"},
           {R"("end":)", R"("end":9)"},
           {R"("size":2)", R"("size":-2)"},
           {R"("mapped":[true])", R"("mapped":[true,true])"},
           {R"("function":"postern_block_0")", R"("function":"main")"},
           {R"("inputs":["f32[2,3]"])", R"("inputs":[])"},
           {R"("outputs":["f32[2,3]"])", R"("outputs":["f99[2]"])"}})
    expect_error<Error>([&, part = part, other = other] { forged(part, other); }, {},
                        ErrorCode::invalid_argument);
  // What only shows when it runs: XLA, or the override's declaration, does not accept it.
  for (const auto& [part, other] : std::vector<std::pair<std::string, std::string>>{
           {R"("inputs":["f32[2,3]"])", R"("inputs":["f32[2,4]"])"},
           {R"("operands":["f32[3]"])", R"("operands":["f32[3000000]"])"},
           {R"("results":["f32[3]"])", R"("results":["f32[4]"])"},
           {R"("size":2)", R"("size":4611686018427387904)"},
           {R"("size":2)", R"("size":3)"}})
    EXPECT_THROW(forged(part, other)(rows).at(0).block_until_ready(), Error) << other;
  EXPECT_EQ(fired, 2) << "of the file that was not forged";
  EXPECT_EQ(
      forged(R"("name":"saved_affine")", R"("name":"nobody's")")(rows).at(0).to_vector<float>()[0],
      -3)
      << "the default";
  EXPECT_EQ(forged(R"("factor":{)", R"("fact":{)")(rows).at(0).to_vector<float>()[0], -3)
      << "no config of that block";
  handle.remove();
}

TEST_F(SavedBlocks, OfTheLibraryAreOfTheirOwnTypesWhateverTheFileSays) {
  const Tensor a = matmul(reshape(iota<float>(9), {3, 3}), eye<float>(3)) + 9.0f * eye<float>(3);
  const std::string text = saved_text(jit([](Tensor m) { return linalg::cholesky(m); }).lower(a));
  const auto head = text.find("// block ");
  const std::string in = R"("operands":["f32[3,3]"])", out = R"("results":["f32[3,3]"])";
  for (const auto& [part, other] :
       std::vector<std::pair<std::string, std::string>>{{in, R"("operands":[])"},
                                                        {in, R"("operands":["f32[]"])"},
                                                        {in, R"("operands":["f32[3,4]"])"},
                                                        {out, R"("results":["f32[1,1]"])"},
                                                        {out, R"("results":[])"}})
    EXPECT_THROW(
        load_text(summed(text.substr(0, head) + replaced(text.substr(head), part, other)))(a)
            .at(0)
            .block_until_ready(),
        Error)
        << other;
  // The function says so too.
  const Loaded small = kept(
      [](Tensor m) {
        return block(
            Forged{},
            [](const Forged&, Tensor v) {
              return slice(v, {0, 0}, {1, 1});
            },
            m);
      },
      a);
  expect_error<TypeError>([&] { small(a); },
                          {"linalg.cholesky gives (f32[3,3]) for (f32[3,3])", "says (f32[1,1])"});
  const Loaded none =
      kept([](Tensor m) { return block(Forged{}, [m](const Forged&) { return m; }); }, a);
  EXPECT_THROW(none(a), TypeError);
}

TEST_F(SavedBlocks, OfTheLibraryAreAcceptedInAllTheirForms) {
  const Tensor a = reshape(iota<float>(24), {2, 3, 4}) + eye(DType::f32, 3, 4) * 30.0f;
  const Tensor square = matmul(a, transpose(a, {0, 2, 1}));
  const auto all = [](std::pair<Tensor, Tensor> v) {
    const auto& [m, s] = v;
    return std::tuple{linalg::lu(m).lu,
                      linalg::qr(m),
                      linalg::qr(m, true).first,
                      linalg::eigh(s).first,
                      linalg::eigvalsh(s),
                      std::get<1>(linalg::svd(m)),
                      std::get<0>(linalg::svd(m, true)),
                      linalg::svdvals(m),
                      linalg::cholesky(s),
                      linalg::triangular_solve(s, m),
                      linalg::triangular_solve(s, s, {.left = false}),
                      cumsum(m, 0),
                      cummax(m, 1, true),
                      vmap([](Tensor row) { return cumprod(row, 0); })(m)};
  };
  const std::pair v{a, square};
  const std::vector<Tensor> want = leaves(jit(all)(v));
  const std::vector<Tensor> gives = kept(all, v)(a, square);
  ASSERT_EQ(gives.size(), want.size());
  for (std::size_t i = 0; i < gives.size(); ++i)
    EXPECT_EQ(gives[i].to_vector<float>(), want[i].to_vector<float>()) << i;
}

}  // namespace
}  // namespace postern::test
