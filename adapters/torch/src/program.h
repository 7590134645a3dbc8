// Programs as torch sees them: what computes, and what computes its derivatives.
#pragma once
#include <postern/torch.h>

#include <map>
#include <mutex>
#include <tuple>

namespace torch::autograd {
struct Node;
}

namespace postern::torch::detail {

/// Texts of saved programs, each with its order: 0, or of which derivative.
using SavedOrders = std::vector<std::tuple<std::int64_t, std::string>>;

class Program {
 public:
  virtual ~Program() = default;
  /// On tensors that are dense; without autograd.
  virtual TorchTensors compute(const TorchTensors& arguments) const = 0;
  /// (arguments, cotangents of the float results) -> cotangents of the float arguments.
  virtual std::shared_ptr<const Program> pull(std::size_t arguments) const = 0;
  /// (arguments, tangents of the float arguments) -> tangents of the float results.
  virtual std::shared_ptr<const Program> push(std::size_t arguments) const = 0;
  virtual SavedOrders saved() const = 0;
};
using ProgramPtr = std::shared_ptr<const Program>;

ProgramPtr traced(LeavesFunction f);
/// The programs of each order, of which those with fitting types are taken. `saved`: their texts,
/// where they are known.
ProgramPtr loaded(std::vector<std::vector<Loaded>> orders, SavedOrders saved = {});

/// Whether a step of torch's graph stands for a run of a program.
bool is_program(const ::torch::autograd::Node& step);

/// A dense tensor as one of Postern, in place where it is aligned.
Tensor lent(const at::Tensor& dense);
/// A result as a tensor of torch, over its memory.
at::Tensor taken(const Tensor& tensor);

}  // namespace postern::torch::detail
