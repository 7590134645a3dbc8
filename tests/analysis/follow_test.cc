// What is followed through branches and loops, by a small lattice: of which inputs a value is made.
#include "analysis/follow.h"

#include "analysis/rewrite.h"
#include "support.h"
#include "trace/trace.h"

namespace postern {
using namespace internal;
namespace {

using Inputs = unsigned;  // a bit for each
using List = std::vector<Inputs>;

struct MadeOf {
  using Value = Inputs;
  List operator()(const Program& program, const List& inputs) const {
    return follow(program, inputs, [&](const Equation& e, const List& operands) {
      if (branches_or_loops(e)) return through(*this, e, operands).results;
      if (e.primitive->transparent) return into(programs_of(*e.params)[0], operands);
      Inputs all = 0;
      for (const Inputs i : operands) all |= i;
      return List(at(e.results), all);
    });
  }
  List into(const ProgramPtr& program, const List& inputs) const {
    ++followed;
    return (*this)(*program, inputs);
  }
  bool join(const Equation&, std::size_t, Inputs& into, Inputs other) const {
    const Inputs before = std::exchange(into, into | other);
    return into != before;
  }
  Inputs number() const { return counter; }
  Inputs slice(Inputs x, bool) const { return x | sliced; }
  Inputs stacked(Inputs y, bool) const { return y | was_stacked; }

  static constexpr Inputs counter = 1 << 10, sliced = 1 << 11, was_stacked = 1 << 12;
  mutable int followed = 0;
};

/// Of each output, for inputs with a bit each.
List made_of(const TracedProgram& traced, int* followed = nullptr) {
  const Program& program = *traced.internal();
  List inputs;
  for (std::size_t i = 0; i < program.inputs.size(); ++i) inputs.push_back(1U << i);
  const MadeOf lattice;
  const List out = lattice(program, inputs);
  if (followed) *followed = lattice.followed;
  return out;
}

const Tensor number = abstract(type<float>()), some = abstract(type<float>({4}));
constexpr Inputs a = 1, b = 2, c = 4, d = 8;

TEST(Follow, BranchesAreJoined) {
  const auto f = jit([](Tensor p, Tensor x, Tensor y) {
    return cond(
        p, [](Tensor u, Tensor v) { return std::pair(u, v); },
        [](Tensor u, Tensor) { return std::pair(u + 1.0F, u * 2.0F); }, x, y);
  });
  const List of = made_of(f.program(abstract(type<bool>()), number, number));
  EXPECT_EQ(of, (List{b, b | c}));
}

TEST(Follow, ACarryIsFollowedUntilNothingChanges) {
  const auto f = jit([](Tensor x, Tensor y, Tensor z, Tensor w) {
    return while_loop([](Tensor u, Tensor, Tensor, Tensor) { return u < 3.0F; },
                      [](Tensor, Tensor v, Tensor s, Tensor t) { return std::tuple(v, s, t, t); },
                      std::tuple(x, y, z, w));
  });
  int followed = 0;
  const List of = made_of(f.program(number, number, number, number), &followed);
  EXPECT_EQ(of, (List{a | b | c | d, b | c | d, c | d, d}));
  EXPECT_EQ(followed, 5);  // three rounds that change it, one that does not, and the condition
}

TEST(Follow, AScanTakesSlicesAndStacksWhatItGives) {
  const auto f = jit([](Tensor init, Tensor constant, Tensor xs) {
    return scan([=](Tensor carry, Tensor x) { return std::pair(carry * constant, x + 1.0F); }, init,
                xs);
  });
  const List of = made_of(f.program(number, number, some));
  EXPECT_EQ(of, (List{a | b, c | MadeOf::sliced | MadeOf::was_stacked}));
}

TEST(Follow, AStepKnowsItsNumber) {
  const auto f = jit([](Tensor x) {
    return fori_loop(
        0, 3, [](Tensor i, Tensor y) { return y + convert(i, DType::f32); }, x);
  });
  EXPECT_EQ(made_of(f.program(number)), (List{a | MadeOf::counter}));
}

TEST(Follow, LoopsInsideOfBranchesInsideOfLoops) {
  const auto f = jit([](Tensor x, Tensor y, Tensor z) {
    return fori_loop(
        0, 2,
        [](Tensor, Tensor u, Tensor v, Tensor w) {
          const auto inner = [](Tensor p, Tensor q) {
            return while_loop([](Tensor s, Tensor) { return s < 9.0F; },
                              [](Tensor s, Tensor t) { return std::tuple(s + t, t); },
                              std::tuple(p, q));
          };
          const auto [s, t] = cond(
              u < 1.0F, inner, [](Tensor p, Tensor q) { return std::tuple(p, q); }, u, v);
          return std::tuple(s, w, t);
        },
        std::tuple(x, y, z));
  });
  EXPECT_EQ(made_of(f.program(number, number, number)), (List{a | b | c, b | c, b | c}));
}

/// What goes into programs and comes out has the programs' lengths, and the carry is joined.
TEST(Follow, SaysOfEachProgramWhatItIsGiven) {
  const auto f = jit([](Tensor x, Tensor limit, Tensor step) {
    return while_loop([=](Tensor u, Tensor) { return u < limit; },
                      [=](Tensor u, Tensor) { return std::tuple(u + step, u); },
                      std::tuple(x, step));
  });
  const TracedProgram traced = f.program(number, number, number);
  const Program& program = *traced.internal();
  bool seen = false;
  follow(program, List{a, b, c}, [&](const Equation& e, const List& operands) {
    EXPECT_TRUE(branches_or_loops(e));
    const Flow<Inputs> flow = through(MadeOf(), e, operands);
    EXPECT_EQ(flow.carries, 2U);
    EXPECT_EQ(flow.inputs, (std::vector<List>{{b, a | c, a | c}, {c, a | c, a | c}}));
    EXPECT_EQ(flow.outputs, (std::vector<List>{{a | b | c}, {a | c, a | c}}));
    EXPECT_EQ(flow.operands, (List{b, c, a | c, a | c}));
    seen = true;
    return flow.results;
  });
  EXPECT_TRUE(seen);
}

TEST(Follow, RewritesInnerProgramsToo) {
  const auto f = jit([](Tensor x) {
    return fori_loop(
        0, 3,
        [](Tensor, Tensor y) {
          return cond(
              y < 1.0F, [](Tensor u) { return u * 2.0F; }, [](Tensor u) { return u * u; }, y);
        },
        x);
  });
  const TracedProgram traced = f.program(number);
  int equations = 0;
  any_equation(*traced.internal(), [&](const Equation&) {
    ++equations;
    return false;
  });
  int seen = 0;
  std::function<ProgramPtr(const ProgramPtr&)> with_places = [&](const ProgramPtr& p) {
    return rewrite(*p, [&](Program& to, Equation e) {
      ++seen;
      e.place = Place();
      e.params = with_each(e, with_places);
      to.equations.push_back(std::move(e));
    });
  };
  const ProgramPtr without = with_places(traced.internal());
  EXPECT_EQ(seen, equations);
  verify(*without);
  EXPECT_FALSE(any_equation(*without, [](const Equation& e) { return e.place.known(); }));
  EXPECT_TRUE(any_equation(*traced.internal(), [](const Equation& e) { return e.place.known(); }));
  // What does not change is not made anew.
  for (const Equation& e : traced.internal()->equations)
    EXPECT_EQ(with_each(e, [](const ProgramPtr& p) { return p; }), e.params);
}

}  // namespace
}  // namespace postern
