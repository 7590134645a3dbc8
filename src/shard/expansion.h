// The rewriting of programs over processes, equation by equation.
#pragma once
#include <span>
#include <vector>

#include "shard/placed.h"
#include "transform/walk.h"

namespace postern::internal {

/// With a mesh split, what it rewrites is inside the body of a shard_map over processes.
class Expansion {
 public:
  explicit Expansion(SplitPtr inside = nullptr) : split_(std::move(inside)) {}

  std::vector<Placed> run(const Program& program, const std::vector<Placed>& inputs) const;

  // The lattice of analysis/follow. A carry is cut from the beginning if a step cuts it.
  using Value = Placement;
  std::vector<Placement> into(const ProgramPtr& p, const std::vector<Placement>& inputs) const;
  static bool join(const Equation& e, std::size_t i, Placement& into, const Placement& other);
  static Placement number() { return {}; }
  static Placement slice(Placement x, bool offloaded);
  static Placement stacked(Placement y, bool offloaded);

 private:
  struct Inner {
    ProgramPtr program;
    std::vector<Placement> outputs;
  };

  std::vector<Placed> equation(const Program& program, const Equation& e,
                               std::span<const Placed> x) const;
  std::vector<Placed> map(const Equation& e, std::span<const Placed> x) const;
  std::vector<Placed> on_shards(const Program& program, const Equation& e,
                                std::span<const Placed> x) const;

  // Rewrites a program that an equation holds, for inputs that lie so. Its outputs are cut as they
  // are wanted (null: they lie as they come).
  Inner inner(const ProgramPtr& p, const std::vector<Placement>& inputs,
              const std::vector<Placement>* wanted = nullptr) const;
  std::vector<Placed> with_programs(const Equation& e, std::span<const Placed> x) const;
  std::vector<Placed> rebound(const Equation& e, std::span<const ProgramPtr> programs,
                              std::span<const Placed> x,
                              const std::vector<Placement>& outputs) const;
  std::vector<Placed> control_flow(const Equation& e, std::span<const Placed> x) const;

  const SplitPtr split_;
};

/// Does a collective of such a body, along axes of both kinds: inside the process by XLA, between
/// processes by their rendezvous.
Tensors collective_over(const Split& split, const Equation& e, const Tensors& x);

/// Returns what collect and a constraint of a sharding are about.
int collect_rank(const Equation& e);
Tensor collected(const Tensor& x, int rank);

}  // namespace postern::internal
