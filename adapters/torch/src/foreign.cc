// Walks torch's graph: which steps are not torch's own, and what depends on what.
#include "foreign.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "program.h"
#include "types.h"

namespace postern::torch {

namespace {

using ::torch::autograd::FunctionPostHook;
using ::torch::autograd::Node;
using ::torch::autograd::variable_list;

/// Whether torch has derivatives of the step in all modes, or says so where it has not.
bool own(const Node& node) {
  if (const auto* const slices = dynamic_cast<const ::torch::autograd::CopySlices*>(&node))
    return !slices->fn || own(*slices->fn);
  return std::string_view(typeid(node).name()).starts_with("N5torch8autograd9generated") ||
         dynamic_cast<const ::torch::autograd::AccumulateGrad*>(&node) ||
         dynamic_cast<const ::torch::autograd::CopyBackwards*>(&node) || detail::is_program(node);
}

/// `torch::autograd::CppNode<Name>` is the step of the class Name.
std::string name_of(const Node& node) {
  const std::string name = node.name();
  constexpr std::string_view of_class = "torch::autograd::CppNode<";
  if (name.starts_with(of_class) && name.ends_with('>'))
    return "the torch::autograd::Function " +
           name.substr(of_class.size(), name.size() - of_class.size() - 1);
  return name;
}

/// What a step gives must be in the graph where what it was given is: a gradient that it has
/// computed outside of it would count as a constant.
class StaysInGraph : public FunctionPostHook {
 public:
  explicit StaysInGraph(const Node& node) : node_(node) {}
  variable_list operator()(const variable_list& given, const variable_list& asked) override {
    if (!at::GradMode::is_enabled() || std::none_of(asked.begin(), asked.end(), in_graph))
      return given;
    for (std::size_t i = 0; i < given.size(); ++i)
      if (node_.next_edge(i).is_valid() && given[i].defined() && differentiable(given[i]) &&
          !in_graph(given[i]))
        throw Error(ErrorCode::failed_precondition,
                    "a derivative of a derivative, or one in forward mode, needs the backward of " +
                        name_of(node_) +
                        " in torch's graph, which that leaves (by detach, without gradients, or by "
                        "a computation on data); make the backward of torch's operations on the "
                        "gradients that it is given, with an undefined tensor where there is "
                        "none, or take one derivative in reverse mode alone");
    return given;
  }

 private:
  static bool in_graph(const at::Tensor& t) { return t.defined() && t.requires_grad(); }
  const Node& node_;  // which has this hook
};

bool watched(const Node& node) {
  const auto& hooks = node.post_hooks();
  return std::any_of(hooks.begin(), hooks.end(), [](const auto& hook) {
    return dynamic_cast<const StaysInGraph*>(hook.get()) != nullptr;
  });
}

/// All that y depends on.
std::unordered_set<Node*> steps_of(const std::vector<at::Tensor>& y) {
  std::unordered_set<Node*> seen;
  std::vector<Node*> open;
  const auto meet = [&](Node* node) {
    if (node && seen.insert(node).second) open.push_back(node);
  };
  for (const at::Tensor& t : y)
    if (t.defined()) meet(t.grad_fn().get());
  while (!open.empty()) {
    const Node& node = *open.back();
    open.pop_back();
    for (const auto& edge : node.next_edges()) meet(edge.function.get());
  }
  return seen;
}

}  // namespace

bool depends(const std::vector<at::Tensor>& y, const std::vector<at::Tensor>& x) {
  const std::unordered_set<Node*> steps = steps_of(y);
  return std::any_of(x.begin(), x.end(), [&](const at::Tensor& t) {
    return steps.contains(::torch::autograd::impl::gradient_edge(t).function.get());
  });
}

std::uint64_t graph_position() { return at::sequence_number::peek(); }

bool foreign_steps(const std::vector<at::Tensor>& y, std::uint64_t began) {
  const std::uint64_t thread = at::RecordFunction::currentThreadId();
  bool any = false;
  for (Node* const step : steps_of(y)) {
    Node& node = *step;
    if (own(node)) continue;
    any = true;
    // What is older may be in use by others.
    const bool ours = node.thread_id() == thread && node.sequence_nr() >= began;
    if (ours && !watched(node)) node.add_post_hook(std::make_unique<StaysInGraph>(node));
  }
  return any;
}

}  // namespace postern::torch
