// Derivatives along a path of steps, by torch's graph and its forward mode.
//
// Complex numbers: torch's gradients are the conjugates of ours, whose cotangents are transposed
// only, so both sides of a pull are conjugated.
#include "derive.h"

#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/forward_grad.h>

#include <mutex>

#include "batched.h"
#include "foreign.h"
#include "kept.h"
#include "types.h"
#include "watch.h"

namespace postern::torch {

namespace {

using ::torch::autograd::ForwardADLevel;

std::mutex in_forward_mode;  // torch has one level of it in the process

bool wants_graph(const at::Tensor& t) { return t.requires_grad(); }

[[noreturn]] void throw_independent() {
  throw Error(
      ErrorCode::failed_precondition,
      "no result depends on what is differentiated, as far as torch's autograd can see (the "
      "function detaches it, or has no derivative); put postern::stop_gradient around the "
      "operands if that is meant");
}

/// Whether torch says of an operation that it has no forward mode, or one that fails.
bool lacks_forward_mode(const c10::Error& error) {
  const std::string_view text = error.what_without_backtrace();
  for (const char* const sign : {"forward AD", "jvp is not implemented", "forward mode",
                                 "forward gradient", "ZeroTensor", "zerotensor"})
    if (text.find(sign) != std::string_view::npos) return true;
  return false;
}

class ForwardLevel {
 public:
  ForwardLevel() : index_(ForwardADLevel::get_next_idx()) {}
  ~ForwardLevel() {
    try {
      ForwardADLevel::release_idx(index_);
    } catch (...) {  // it is ours, so torch finds it
    }
  }
  ForwardLevel(const ForwardLevel&) = delete;
  std::uint64_t index() const { return index_; }

 private:
  std::uint64_t index_;
};

thread_local bool in_push = false;

}  // namespace

TorchTensors chosen(const TorchTensors& all, const std::vector<bool>& which) {
  TorchTensors some;
  for (std::size_t i = 0; i < which.size(); ++i)
    if (which[i]) some.push_back(all[i]);
  return some;
}

Movable derivative_of(const Movable& function, Step step) {
  Movable d = function;
  const auto count = [](const std::vector<bool>& which) {
    return static_cast<std::size_t>(std::count(which.begin(), which.end(), true));
  };
  const std::size_t in = count(function.in), out = count(function.out);
  d.in.insert(d.in.end(), step == Step::pull ? out : in, true);
  d.out.assign(step == Step::pull ? in : out, true);
  return d;
}

TorchTensors pulled(const TorchTensors& y, const TorchTensors& x, const TorchTensors& ct, bool must,
                    bool keep, bool graph) {
  TorchTensors from, with, wanted, out(x.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (!wants_graph(y[i])) continue;
    from.push_back(y[i]);
    with.push_back(conjugate(ct[i]));
  }
  for (const at::Tensor& t : x)
    if (wants_graph(t)) wanted.push_back(t);
  TorchTensors given(wanted.size());
  if (!from.empty() && !wanted.empty())
    given = ::torch::autograd::grad(from, wanted, with, keep || graph, graph, true);
  // A step may leave a gradient undefined that is zero, so the graph is asked.
  const bool any =
      std::any_of(given.begin(), given.end(), [](const at::Tensor& g) { return g.defined(); });
  if (must && !any && !depends(from, wanted)) throw_independent();
  std::size_t next = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const at::Tensor g = wants_graph(x[i]) ? given[next++] : at::Tensor();
    out[i] = g.defined() ? conjugate(g) : at::zeros_like(x[i]);
  }
  return out;
}

Evaluation::Evaluation(const Erased& f, const Movable& function, const Path& path, Learned& learned,
                       std::optional<std::int64_t> batch)
    : f_(f), path_(path), levels_{function}, learned_(learned), batch_(batch) {
  for (const Step step : path) levels_.push_back(derivative_of(levels_.back(), step));
}

void Evaluation::prepare(TorchTensors& inputs) const {
  // The last step's own tangents or cotangents are what it is linear in.
  const std::vector<bool>& moves = levels_[path_.empty() ? 0 : path_.size() - 1].in;
  for (std::size_t i = 0; i < moves.size(); ++i)
    if (moves[i]) inputs[i].requires_grad_(true);
}

TorchTensors Evaluation::operator()(const TorchTensors& inputs) const {
  const c10::AutoGradMode with_graphs(true);
  TorchTensors out = at_level(path_.size(), inputs, false);
  for (at::Tensor& t : out) t = t.detach();
  return out;
}

TorchTensors Evaluation::function(const TorchTensors& inputs) const {
  const auto first = inputs.begin() + static_cast<std::ptrdiff_t>(f_.parameters.size());
  const TorchTensors rest(first, inputs.end());
  return batch_ ? run_batched(f_, rest, *batch_, learned_) : f_.run(rest);
}

/// For derivatives of derivatives, and for forward mode.
TorchTensors Evaluation::checked_function(const TorchTensors& in) const {
  const std::uint64_t began = graph_position();
  std::optional<Watch> watch;
  if (forward_) watch.emplace();
  TorchTensors y = function(in);
  const bool foreign = foreign_steps(y, began);
  // What autograd takes for a constant is one in forward mode too.
  if (forward_ && (foreign || watch->seen()))
    throw NoForwardMode(ErrorCode::unimplemented, "torch's forward mode would not be its reverse");
  return y;
}

TorchTensors Evaluation::at_level(std::size_t level, const TorchTensors& in, bool graph) const {
  if (level == 0) return checked_function(in);
  const Movable& below = levels_[level - 1];
  const auto middle = in.begin() + static_cast<std::ptrdiff_t>(below.in.size());
  const TorchTensors x(in.begin(), middle), moved(middle, in.end());
  if (path_[level - 1] == Step::push) return push(level, x, moved, graph);
  const TorchTensors y = chosen(at_level(level - 1, x, true), below.out);
  return pulled(y, chosen(x, below.in), moved, level == 1, false, graph);
}

TorchTensors Evaluation::push(std::size_t level, const TorchTensors& x, const TorchTensors& dx,
                              bool graph) const {
  // Torch's compiler of scripted functions knows nothing of forward mode, and drops tangents. Of a
  // tangent's derivative torch loses what it takes of the results, as a factorization.
  if (!graph && !in_push && !f_.scripted && learned_.forward_mode) {
    const std::unique_lock alone(in_forward_mode, std::try_to_lock);
    if (alone && ForwardADLevel::try_get_by_idx(0) == nullptr) {
      const RandomState began = random_state();
      if (auto dy = try_forward(level, x, dx)) return *std::move(dy);
      learned_.forward_mode = false;
      rewind_random_state(began);
    }
  }
  return push_by_pulls(level, x, dx, graph);
}

std::optional<TorchTensors> Evaluation::try_forward(std::size_t level, const TorchTensors& x,
                                                    const TorchTensors& dx) const {
  struct Inside {
    explicit Inside(bool& here) : forward(here) { forward = in_push = true; }
    ~Inside() { forward = in_push = false; }
    bool& forward;
  };
  const Inside inside(forward_);
  try {
    return push_forward(level, x, dx);
  } catch (const NoForwardMode&) {
  } catch (const c10::Error& error) {
    if (!lacks_forward_mode(error)) throw;
  }
  return {};
}

TorchTensors Evaluation::push_forward(std::size_t level, const TorchTensors& x,
                                      const TorchTensors& dx) const {
  const Movable& below = levels_[level - 1];
  const ForwardLevel dual;
  const TorchTensors moving = chosen(x, below.in);
  for (std::size_t i = 0; i < moving.size(); ++i)
    moving[i]._set_fw_grad(dx[i], dual.index(), false);
  const TorchTensors y = chosen(at_level(level - 1, x, true), below.out);
  TorchTensors out;
  bool any = false;
  for (const at::Tensor& t : y) {
    const at::Tensor& tangent = t._fw_grad(dual.index());
    any = any || tangent.defined();
    out.push_back(tangent.defined() ? tangent : at::zeros_like(t));
  }
  if (level == 1 && !any) throw_independent();
  return out;
}

/// The pull is linear in its cotangents u, and its own pull by them is the push.
TorchTensors Evaluation::push_by_pulls(std::size_t level, const TorchTensors& x,
                                       const TorchTensors& dx, bool graph) const {
  const Movable& below = levels_[level - 1];
  const TorchTensors y = chosen(at_level(level - 1, x, true), below.out);
  TorchTensors u;
  for (const at::Tensor& t : y) u.push_back(at::zeros_like(t.detach()).requires_grad_(true));
  const TorchTensors g = pulled(y, chosen(x, below.in), u, level == 1, true, true);
  return pulled(g, u, dx, false, false, graph);
}

}  // namespace postern::torch
