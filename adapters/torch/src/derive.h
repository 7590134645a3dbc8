// Derivatives of a function of torch, by torch, to any order.
#pragma once
#include <postern/torch.h>

#include <atomic>
#include <optional>
#include <string>

namespace postern::torch {

using detail::Erased;
using detail::TorchTensors;

/// What of a function's tensors can be differentiated.
struct Movable {
  std::vector<bool> in, out;
};

/// How a derivative comes of a function, innermost first.
/// pull: (inputs, cotangents of the movable outputs) -> cotangents of the movable inputs.
/// push: (inputs, tangents of the movable inputs) -> tangents of the movable outputs.
enum class Step : std::uint8_t { pull, push };
using Path = std::vector<Step>;

Movable derivative_of(const Movable& function, Step step);

/// What runs of a function have shown, so that it is not tried again.
struct Learned {
  enum class Draws : std::uint8_t { unknown, no, yes };
  std::atomic<Draws> draws = Draws::unknown;  // random numbers, from torch's own generator
  std::atomic<bool> forward_mode = true;      // torch's has all of its derivative
  std::atomic<bool> vmap = true;              // torch's has all of its graph
};

/// The path of a function at one point.
class Evaluation {
 public:
  /// `batch`: the inputs have a batch of that size in front, one of torch's vmap.
  Evaluation(const Erased& f, const Movable& function, const Path& path, Learned& learned,
             std::optional<std::int64_t> batch);

  /// Marks the inputs as autograd needs it. They must be leaves.
  void prepare(TorchTensors& inputs) const;
  /// `inputs`, prepared; results are without a graph.
  TorchTensors operator()(const TorchTensors& inputs) const;
  /// The function itself; with a graph where inputs want one.
  TorchTensors function(const TorchTensors& inputs) const;

 private:
  TorchTensors checked_function(const TorchTensors& in) const;
  TorchTensors at_level(std::size_t level, const TorchTensors& in, bool graph) const;
  TorchTensors push(std::size_t level, const TorchTensors& x, const TorchTensors& dx,
                    bool graph) const;
  TorchTensors push_forward(std::size_t level, const TorchTensors& x, const TorchTensors& dx) const;
  std::optional<TorchTensors> try_forward(std::size_t level, const TorchTensors& x,
                                          const TorchTensors& dx) const;
  TorchTensors push_by_pulls(std::size_t level, const TorchTensors& x, const TorchTensors& dx,
                             bool graph) const;

  const Erased& f_;
  const Path path_;
  std::vector<Movable> levels_;  // the function, then what each step makes of it
  Learned& learned_;
  std::optional<std::int64_t> batch_;
  mutable bool forward_ = false;  // inside of try_forward
};

TorchTensors chosen(const TorchTensors& all, const std::vector<bool>& which);

/// Cotangents of x for those of y, of which x is a leaf or a part. `must`: throws where the
/// graph has no y that depends on any x. `keep`: the graph may be used again; `graph`: and the
/// result has one.
TorchTensors pulled(const TorchTensors& y, const TorchTensors& x, const TorchTensors& ct, bool must,
                    bool keep, bool graph);

}  // namespace postern::torch
