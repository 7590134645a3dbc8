// A program as a function of torch's autograd.
#include <ATen/core/grad_mode.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>

#include "program.h"
#include "types.h"
#include "watch.h"

namespace postern::torch {

namespace {

using detail::ProgramPtr;
using detail::TorchTensors;
using ::torch::autograd::Node;
using ::torch::autograd::SavedVariable;
using ::torch::autograd::variable_list;

constexpr std::uint64_t level = 0;  // of torch's forward mode, which has one

TorchTensors applied(const ProgramPtr& program, const TorchTensors& arguments);

/// The step of torch's graph that stands for a run.
class Pull : public Node {
 public:
  Pull(ProgramPtr program, const TorchTensors& arguments) : program_(std::move(program)) {
    for (const at::Tensor& t : arguments) {
      saved_.emplace_back(t, false);
      moves_.push_back(differentiable(t));
    }
  }
  std::string name() const override { return "PosternProgram"; }
  void release_variables() override {
    const std::scoped_lock lock(mutex_);
    for (SavedVariable& s : saved_) s.reset_data();
  }

  variable_list apply(variable_list&& gradients) override {
    TorchTensors in;
    {
      const std::scoped_lock lock(mutex_);
      for (const SavedVariable& s : saved_) in.push_back(s.unpack(shared_from_this()));
    }
    const std::size_t count = in.size();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const at::Tensor& g = gradients[i];
      in.push_back(g.defined() ? conjugate(g)
                               : input_metadata(static_cast<std::uint32_t>(i)).zeros_like());
    }
    const TorchTensors given = applied(program_->pull(count), in);
    variable_list out(count);
    for (std::size_t i = 0, next = 0; i < count; ++i)
      if (moves_[i]) out[i] = conjugate(given[next++]);
    return out;
  }

 private:
  ProgramPtr program_;
  std::vector<SavedVariable> saved_;
  std::vector<bool> moves_;
};

/// Row-major memory of the CPU. Throws TypeError.
at::Tensor dense(const at::Tensor& t, std::size_t index) {
  const auto refuse = [&](const std::string& what) {
    throw TypeError("a Postern program in torch: argument " + std::to_string(index) + " is " +
                    what);
  };
  if (!t.defined()) refuse("an undefined tensor");
  if (at::functorch::isBatchedTensor(t))
    refuse(
        "inside a vmap of torch, which cannot look into a program; let Postern batch the call "
        "that is around it, with VmapMethod::sequential");
  if (!t.device().is_cpu()) refuse("on " + t.device().str() + ", not on the CPU");
  if (t.layout() != at::kStrided) refuse("not a dense tensor");
  if (t.is_contiguous() && !t.is_conj() && !t.is_neg()) return t;  // what follows costs 0.5 us
  return t.detach().resolve_conj().resolve_neg().contiguous();
}

TorchTensors computed(const ProgramPtr& program, const TorchTensors& arguments) {
  const Unwatched unwatched;
  const at::NoGradGuard no_graph;
  TorchTensors x;
  x.reserve(arguments.size());
  for (std::size_t i = 0; i < arguments.size(); ++i) x.push_back(dense(arguments[i], i));
  return program->compute(x);
}

/// The tangents of the results that can have one.
TorchTensors pushed(const ProgramPtr& program, const TorchTensors& arguments) {
  TorchTensors in, moved;
  for (const at::Tensor& t : arguments) {
    in.push_back(differentiable(t) ? t._fw_primal(level) : t);
    if (!differentiable(t)) continue;
    const at::Tensor& tangent = t._fw_grad(level);
    moved.push_back(tangent.defined() ? tangent : at::zeros_like(in.back()));
  }
  const std::size_t count = in.size();
  in.insert(in.end(), moved.begin(), moved.end());
  return applied(program->push(count), in);
}

TorchTensors applied(const ProgramPtr& program, const TorchTensors& arguments) {
  bool graph = false, dual = false;
  for (const at::Tensor& t : arguments) {
    if (!t.defined()) continue;  // `dense` says so
    graph = graph || t.requires_grad();
    dual = dual || t._fw_grad(level).defined();
  }
  graph = graph && at::GradMode::is_enabled();
  TorchTensors y = computed(program, arguments);
  if (graph) {
    const std::shared_ptr<Node> step(new Pull(program, arguments), ::torch::autograd::deleteNode);
    step->set_next_edges(::torch::autograd::collect_next_edges(arguments));
    for (at::Tensor& t : y)
      if (differentiable(t)) ::torch::autograd::set_history(t, step);
  }
  if (dual) {
    const TorchTensors dy = pushed(program, arguments);
    for (std::size_t i = 0, next = 0; i < y.size(); ++i)
      if (differentiable(y[i])) y[i]._set_fw_grad(dy[next++], level, false);
  }
  return y;
}

/// Whether it can be the derivative of the program before it. Throws TypeError.
void check_derivative(const Loaded& before, const Loaded& derivative, std::size_t order) {
  std::vector<Type> takes = before.inputs(), gives;
  for (const Type& t : before.inputs())
    if (is_differentiable(t.dtype)) gives.push_back(t);
  for (const Type& t : before.outputs())
    if (is_differentiable(t.dtype)) takes.push_back(t);
  const auto same = [](const Type& a, const Type& b) {
    return a.dtype == b.dtype && a.dims == b.dims;
  };
  const auto check = [&](const char* does, const char* what, const std::vector<Type>& wanted,
                         const std::vector<Type>& has) {
    if (!std::equal(has.begin(), has.end(), wanted.begin(), wanted.end(), same))
      throw TypeError("torch::module: the derivative of order " + std::to_string(order) + does +
                      to_string(std::span(has)) + ", required are " + what +
                      to_string(std::span(wanted)));
  };
  check(" takes ", "the arguments and the cotangents of the float results, ", takes,
        derivative.inputs());
  check(" gives ", "the cotangents of the float arguments, ", gives, derivative.outputs());
}

}  // namespace

std::vector<at::Tensor> Module::run(const std::vector<at::Tensor>& arguments) const {
  return applied(program_, arguments);
}

at::Tensor Module::operator()(const std::vector<at::Tensor>& arguments) const {
  TorchTensors y = applied(program_, arguments);
  if (y.size() != 1)
    throw TypeError("a Postern program in torch gives " + std::to_string(y.size()) +
                    " results, and one is asked for; take all of them with run");
  return std::move(y[0]);
}

bool detail::is_program(const Node& step) { return dynamic_cast<const Pull*>(&step) != nullptr; }

Module detail::module_of(LeavesFunction f) { return Module(traced(std::move(f))); }

void detail::wrong_arguments(std::size_t count) {
  throw TypeError("a Postern program in torch: the function does not take " +
                  std::to_string(count) + " tensors");
}

Module module(Loaded program, std::vector<Loaded> derivatives) {
  std::vector<std::vector<Loaded>> orders{{std::move(program)}};
  for (Loaded& d : derivatives) {
    check_derivative(orders.back().front(), d, orders.size());
    orders.push_back({std::move(d)});
  }
  return Module(detail::loaded(std::move(orders)));
}

}  // namespace postern::torch
