// Containers: which there are, their leaves, paths and structures, and how jit keeps them apart.
#include "support.h"

namespace postern {
namespace {

using test::expect_error, test::has;
using Names = std::vector<std::string>;

struct Layer {
  Tensor weight, bias;
};
struct Model {
  std::vector<Layer> layers;
  std::map<std::string, Tensor> extra;
  std::optional<Tensor> scale;
};
struct Tagged {
  Tensor w, b;
  std::string tag;
};
enum class Kind { sum, product };
struct Options {
  Kind kind = Kind::sum;
  int power = 1;
  bool negate = false;
  double offset = 0;
};
struct Sixteen {
  Tensor a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p;
};
struct Nothing {};

template <class Tree>
Names paths_of(const Tree& tree) {
  Names out;
  detail::leaf_paths(tree, "", out);
  return out;
}
template <class Tree>
std::vector<int> numbers_of(const Tree& tree) {
  std::vector<int> out;
  for (const Tensor& t : leaves(tree)) out.push_back(t.item<int>());
  return out;
}
using Ints = std::vector<int>;

TEST(Tree, LeavesInOrder) {
  RecordProperty("covers", "CALL-07");
  EXPECT_EQ(numbers_of(Tensor(1)), (Ints{1}));
  EXPECT_EQ(
      numbers_of(std::tuple(Tensor(1), std::pair(Tensor(2), std::array{Tensor(3), Tensor(4)}))),
      (Ints{1, 2, 3, 4}));
  EXPECT_EQ(numbers_of(std::map<std::string, Tensor>{
                {"z", Tensor(3)}, {"a", Tensor(1)}, {"b", Tensor(2)}}),
            (Ints{1, 2, 3}))
      << "by key";
  EXPECT_EQ(numbers_of(Model{
                {{Tensor(1), Tensor(2)}, {Tensor(3), Tensor(4)}}, {{"k", Tensor(5)}}, Tensor(6)}),
            (Ints{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(numbers_of(std::vector<std::optional<Tensor>>{Tensor(1), {}, Tensor(2)}), (Ints{1, 2}));
  EXPECT_TRUE(leaves(std::tuple<>()).empty());
  EXPECT_TRUE(leaves(Nothing()).empty());
  EXPECT_EQ(leaves(Sixteen()).size(), 16u);
}

TEST(Tree, PathsNameTheLeaves) {
  EXPECT_EQ(paths_of(Tensor(1)), (Names{""}));
  EXPECT_EQ(paths_of(std::pair(Tensor(1), std::vector{Tensor(2), Tensor(3)})),
            (Names{"[0]", "[1][0]", "[1][1]"}));
  EXPECT_EQ(paths_of(Model{{{Tensor(1), Tensor(2)}}, {{"k", Tensor(5)}}, Tensor(6)}),
            (Names{".layers[0].weight", ".layers[0].bias", ".extra.k", ".scale"}));
  EXPECT_EQ(paths_of(Tagged{Tensor(1), Tensor(2), "x"}), (Names{".w", ".b"}));
  EXPECT_EQ(paths_of(Sixteen())[15], ".p");
}

TEST(Tree, PartsMayHaveNames) {
  EXPECT_EQ(paths_of(named("loss", Tensor(1))), (Names{".loss"}));
  const std::tuple parts{Tensor(0), named("loss", Tensor(1)), named("n", 2),
                         named("model", Tagged{Tensor(3), Tensor(4), "x"})};
  EXPECT_EQ(paths_of(parts), (Names{"[0]", ".loss", ".n", ".model.w", ".model.b"}));
  EXPECT_EQ(numbers_of(parts), (Ints{0, 1, 2, 3, 4}));
  EXPECT_EQ(paths_of(std::map<std::string, std::vector<WithName<Tensor>>>{
                {"k", {named("a", Tensor(1)), named("b", Tensor(2))}}}),
            (Names{".k.a", ".k.b"}));
  // In what taps show and files hold, and through jit.
  const auto f = jit([](Tensor x) {
    tap({.name = "train"}, std::pair{x, named("loss", 2 * x)}, [](const TapInfo& info, int, int) {
      EXPECT_EQ(Names(info.paths.begin(), info.paths.end()), (Names{"[0]", ".loss"}));
    });
    return std::pair{named("loss", 3 * x), x};
  });
  EXPECT_EQ(f(Tensor(2)).first.value.item<int>(), 6);
  EXPECT_EQ(f(Tensor(2)).first.name, "loss");
}

TEST(Tree, MapLeaves) {
  const Model twice = map_leaves([](const Tensor& t) { return t * 2; },
                                 Model{{{Tensor(1), Tensor(2)}}, {{"k", Tensor(5)}}, {}});
  EXPECT_EQ(numbers_of(twice), (Ints{2, 4, 10}));
  EXPECT_FALSE(twice.scale);
}

TEST(Tree, MapLeavesOfSeveral) {
  const Model p{{{Tensor(1), Tensor(2)}}, {{"k", Tensor(5)}}, {}};
  const auto sum_of = [](Tensor a, Tensor b, const auto&... more) {
    return ((a + 10 * b) + ... + (100 * more));
  };
  EXPECT_EQ(numbers_of(map_leaves(sum_of, p, p)), (Ints{11, 22, 55}));
  EXPECT_EQ(numbers_of(map_leaves(sum_of, p, p, p)), (Ints{111, 222, 555}));
  EXPECT_EQ(numbers_of(map_leaves(sum_of, p, p, p, p)), (Ints{211, 422, 1055}));
  EXPECT_FALSE(map_leaves(sum_of, p, p).scale);
  EXPECT_EQ(numbers_of(map_leaves(maximum, std::pair{Tensor(1), Tensor(4)},
                                  std::array{Tensor(3), Tensor(2)})),
            (Ints{3, 4}))
      << "of one structure, whatever they are in C++";
  const Model other{{{Tensor(1), Tensor(2)}}, {{"l", Tensor(5)}}, {}};
  expect_error<TypeError>(
      [&] { map_leaves(sum_of, p, p, other); },
      {"map_leaves: a container has the structure", "1:l", "1:k", "tree_test.cc:"});
  expect_error<TypeError>(
      [&] {
        map_leaves(sum_of, Tagged{{}, {}, "x"}, Tagged{{}, {}, "y"});
      },
      {"map_leaves", "1:y"});
}

TEST(Tree, ThroughJitAndCall) {
  RecordProperty("covers", "CALL-07 TYPE-11");
  auto add_one = [](std::span<const AnyView> in, std::span<const AnyMutableView> out) {
    for (std::size_t i = 0; i < in.size(); ++i) out[i].as<int>()[0] = in[i].as<int>()[0] + 1;
  };
  auto f = jit([&](Model m) { return call({.effect = Effect::unordered}, m, add_one, m); });
  const Model out =
      f(Model{{{Tensor(1), Tensor(2)}, {Tensor(3), Tensor(4)}}, {{"k", Tensor(5)}}, Tensor(6)});
  EXPECT_EQ(numbers_of(out), (Ints{2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(out.layers.size(), 2u);
  EXPECT_EQ(out.extra.at("k").item<int>(), 6);
  const Model less = f(Model{{}, {}, {}});
  EXPECT_TRUE(less.layers.empty() && less.extra.empty() && !less.scale);
  const Tagged tagged =
      jit([&](Tagged t) { return call(t, add_one, t); })(Tagged{Tensor(1), Tensor(2), "kept"});
  EXPECT_EQ(numbers_of(tagged), (Ints{2, 3}));
  EXPECT_EQ(tagged.tag, "kept");
}

TEST(Tree, BadResultsNameTheLeaf) {
  const Model like{{{abstract(type<int>()), abstract(type<float>({2}))}}, {}, {}};
  auto f = jit([&](Tensor x) {
    return call(
        like, [](int v) { return std::tuple(v, v); }, x);
  });
  expect_error<CallbackError>([&] { f(Tensor(1)).layers[0].weight.block_until_ready(); },
                              {".layers[0].bias", "f32[2]", "s32[]"}, ErrorCode::bad_result);
}

/// How often a jitted function was traced for these calls.
template <class... A>
int traces(const std::tuple<A...>& arguments) {
  int count = 0;
  auto f = jit([&](auto x) {
    ++count;
    return leaves(x).size() ? leaves(x)[0] : Tensor(0);
  });
  std::apply([&](const auto&... a) { (f(a), ...); }, arguments);
  return count;
}
const Tensor leaf = Tensor(1);

TEST(Tree, StructuresAreKeptApart) {
  RecordProperty("covers", "IR-08");
  using V = std::vector<Tensor>;
  using M = std::map<std::string, Tensor>;
  using O = std::optional<Tensor>;
  EXPECT_EQ(traces(std::tuple(V{leaf}, V{leaf})), 1);
  EXPECT_EQ(traces(std::tuple(V{leaf}, V{leaf, leaf}, V{})), 3);
  EXPECT_EQ(
      traces(std::tuple(std::pair(V{leaf}, V{leaf, leaf}), std::pair(V{leaf, leaf}, V{leaf}))), 2);
  EXPECT_EQ(traces(std::tuple(M{{"a", leaf}}, M{{"b", leaf}}, M{{"a", leaf}})), 2);
  EXPECT_EQ(traces(std::tuple(std::pair(O{leaf}, O{}), std::pair(O{}, O{leaf}))), 2);
  EXPECT_EQ(
      traces(std::tuple(Tagged{leaf, leaf, "a"}, Tagged{leaf, leaf, "b"}, Tagged{leaf, leaf, "a"})),
      2);
  EXPECT_EQ(traces(std::tuple(std::pair(leaf, 1), std::pair(leaf, 2), std::pair(leaf, 1))), 2);
  EXPECT_EQ(traces(std::tuple(std::pair(leaf, 0.1), std::pair(leaf, 0.1 + 1e-18),
                              std::pair(leaf, 0.1 + 1e-16))),
            2)
      << "in full precision";
  EXPECT_EQ(traces(std::tuple(std::pair(leaf, Kind::sum), std::pair(leaf, Kind::product))), 2);
  EXPECT_EQ(traces(std::tuple(std::tuple(leaf, std::string("a"), std::string("bc")),
                              std::tuple(leaf, std::string("ab"), std::string("c")))),
            2);
}

TEST(Tree, NoTwoStructuresLookTheSame) {
  RecordProperty("covers", "IR-08");
  using Counts = std::map<std::string, int>;
  auto f = jit([](Tensor x, Counts counts) { return x * int(counts.size()); });
  EXPECT_EQ(f(leaf, Counts{{"a", 1}, {"b", 2}}).item<int>(), 2);
  EXPECT_EQ(f(leaf, Counts{{"a:1,b", 2}}).item<int>(), 1);
  auto g = jit([](std::vector<std::string> words, Tensor x) { return x * int(words.size()); });
  EXPECT_EQ(g({"a", "b"}, leaf).item<int>(), 2);
  EXPECT_EQ(g({"a,1:b"}, leaf).item<int>(), 1);
}

TEST(Tree, ContainersOfOtherTypesForOneFunction) {
  RecordProperty("covers", "IR-08");
  auto f = jit([](auto... xs) { return std::tuple<decltype(xs)...>(xs...); });
  const auto one = f(std::pair(leaf, leaf));
  EXPECT_EQ(std::get<0>(one).second.item<int>(), 1);
  const auto two = f(leaf, leaf);
  EXPECT_EQ(std::get<1>(two).item<int>(), 1);
  const auto three = f(std::array{leaf, leaf});
  EXPECT_EQ(std::get<0>(three)[1].item<int>(), 1);
  const auto four = f(Layer{leaf, leaf});
  EXPECT_EQ(std::get<0>(four).bias.item<int>(), 1);
  struct Other {
    Tensor left, right;
  };
  EXPECT_EQ(std::get<0>(f(Other{leaf, leaf})).right.item<int>(), 1);
}

TEST(Tree, ArgumentsOfOtherTypesAreOtherPrograms) {
  const Tensor five(5), three(3);
  auto either = jit([](auto p) {
    if constexpr (std::is_same_v<decltype(p), std::array<Tensor, 2>>)
      return p[0] + p[1];
    else
      return p.first - p.second;
  });
  EXPECT_EQ(either(std::pair(five, three)).item<int>(), 2);
  EXPECT_EQ(either(std::array{five, three}).item<int>(), 8);
  auto half = jit([](auto p) { return p.first * (p.second / 2); });
  EXPECT_EQ(half(std::pair(Tensor(1.0f), 1)).item<float>(), 0);
  EXPECT_EQ(half(std::pair(Tensor(1.0f), 1.0f)).item<float>(), 0.5f);
  struct Narrow {
    Tensor x;
    int a, b;
  };
  struct Wide {
    Tensor x;
    std::int64_t a, b;
  };
  auto same = jit([](auto p) { return p; });
  EXPECT_EQ(same(Narrow{leaf, 7, 8}).b, 8);
  const Wide wide = same(Wide{leaf, 7, 8});
  EXPECT_EQ(wide.a, 7);
  EXPECT_EQ(wide.b, 8);
}

TEST(Tree, BooleansAndTextsAsArguments) {
  auto choose = jit([](Tensor x, std::vector<bool> minus) { return minus[1] ? -x : x; });
  EXPECT_EQ(choose(leaf, std::vector<bool>{true, false}).item<int>(), 1);
  EXPECT_EQ(choose(leaf, std::vector<bool>{false, true}).item<int>(), -1);
  auto named = jit([](Tensor x, auto text) { return std::string(text) == "minus" ? -x : x; });
  EXPECT_EQ(named(leaf, "plus").item<int>(), 1);
  EXPECT_EQ(named(leaf, "minus").item<int>(), -1);
}

TEST(Tree, StaticsAreSeenWhileTracing) {
  auto f = jit([](Tensor x, Options o) {
    Tensor y = x;
    for (int i = 1; i < o.power; ++i) y = o.kind == Kind::sum ? y + x : y * x;
    return (o.negate ? -y : y) + float(o.offset);
  });
  EXPECT_EQ(f(Tensor(3.0f), Options{Kind::sum, 3}).item<float>(), 9);
  EXPECT_EQ(f(Tensor(3.0f), Options{Kind::product, 3}).item<float>(), 27);
  EXPECT_EQ(f(Tensor(3.0f), Options{Kind::product, 3, true, 0.5}).item<float>(), -26.5);
  auto g = jit(
      [](Tensor x, int n, const std::string& how) { return how == "twice" ? x * 2 * n : x * n; });
  EXPECT_EQ(g(Tensor(5), 3, "once").item<int>(), 15);
  EXPECT_EQ(g(Tensor(5), 3, "twice").item<int>(), 30);
}

TEST(Tree, ResultsOfEveryForm) {
  auto f = jit([](Tensor x) {
    return std::tuple(Layer{x, x + 1}, std::optional<Tensor>(),
                      std::map<std::string, std::vector<Tensor>>{{"k", {x + 2}}}, 5,
                      std::string("note"));
  });
  const auto [layer, none, map, number, note] = f(Tensor(1));
  EXPECT_EQ(layer.bias.item<int>(), 2);
  EXPECT_FALSE(none);
  EXPECT_EQ(map.at("k")[0].item<int>(), 3);
  EXPECT_EQ(number, 5);
  EXPECT_EQ(note, "note");
}

}  // namespace
}  // namespace postern
