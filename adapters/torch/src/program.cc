// Programs traced from functions or loaded from files, and the programs of their derivatives.
#include "program.h"

#include <ATen/dlpack.h>
#include <ATen/ops/from_blob.h>
#include <postern/dlpack.h>
#include <postern/jit.h>
#include <postern/ops.h>

#include <algorithm>

#include "foreign.h"
#include "types.h"

namespace postern::torch::detail {

namespace {

using Types = std::vector<Type>;

bool moves(const Tensor& t) { return is_differentiable(t.dtype()); }

/// The cotangents of the float arguments, from the arguments and those of the float results.
LeavesFunction pull_of(const LeavesFunction& f, std::size_t count) {
  return [f, count](const Leaves& all) {
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(count);
    const Leaves x(all.begin(), middle);
    auto [y, back] = vjp([f](const Leaves& v) { return f(v); }, x);
    Leaves ct;
    auto next = middle;
    for (const Tensor& t : y) ct.push_back(moves(t) ? *next++ : zeros(Type{DType::pred, t.dims()}));
    const Leaves given = std::get<0>(back(ct));
    Leaves out;
    for (std::size_t i = 0; i < count; ++i)
      if (moves(x[i])) out.push_back(given[i]);
    return out;
  };
}

LeavesFunction push_of(const LeavesFunction& f, std::size_t count) {
  return [f, count](const Leaves& all) {
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(count);
    const Leaves x(all.begin(), middle);
    Leaves dx;
    auto next = middle;
    for (const Tensor& t : x) dx.push_back(moves(t) ? *next++ : zeros(Type{DType::pred, t.dims()}));
    const auto [y, dy] = jvp([f](const Leaves& v) { return f(v); }, std::tuple(x), std::tuple(dx));
    Leaves out;
    for (std::size_t i = 0; i < y.size(); ++i)
      if (moves(y[i])) out.push_back(dy[i]);
    return out;
  };
}

Types types_of(const TorchTensors& tensors) {
  Types types;
  for (const at::Tensor& t : tensors) types.push_back(type_of(t));
  return types;
}

bool any_elements(const Leaves& leaves) {
  return std::any_of(leaves.begin(), leaves.end(), [](const Tensor& t) { return t.size() > 0; });
}

bool fit(const Types& types, const TorchTensors& tensors) {
  return std::equal(types.begin(), types.end(), tensors.begin(), tensors.end(),
                    [](const Type& type, const at::Tensor& t) {
                      return at::IntArrayRef(type.dims) == t.sizes() &&
                             type.dtype == dtype_of(t.scalar_type());
                    });
}

Leaves lent_all(const TorchTensors& tensors) {
  Leaves leaves;
  leaves.reserve(tensors.size());
  for (const at::Tensor& t : tensors) leaves.push_back(lent(t));
  return leaves;
}

TorchTensors taken_all(const Leaves& leaves) {
  TorchTensors tensors;
  tensors.reserve(leaves.size());
  for (const Tensor& t : leaves) tensors.push_back(taken(t));
  return tensors;
}

/// The results of a program that was run on these arguments, which are the torch tensors' memory.
/// It may give back what it was given, and torch may write to results.
TorchTensors taken_apart(const Leaves& results, const TorchTensors& arguments) {
  TorchTensors y = taken_all(results);
  for (at::Tensor& t : y)
    if (std::any_of(arguments.begin(), arguments.end(), [&](const at::Tensor& a) {
          return t.numel() > 0 && t.data_ptr() == a.data_ptr();
        }))
      t = t.clone();
  return y;
}

class Traced : public Program {
 public:
  explicit Traced(LeavesFunction f) : f_(std::move(f)), jitted_(jit(Waited{f_})) {}

  TorchTensors compute(const TorchTensors& arguments) const override {
    see(arguments);
    const Leaves x = lent_all(arguments);
    const auto [results, end] = jitted_(x);
    for (const Tensor& t : end) t.block_until_ready();
    return taken_apart(results, arguments);
  }
  ProgramPtr pull(std::size_t arguments) const override { return made(pulls_, arguments, pull_of); }
  ProgramPtr push(std::size_t arguments) const override {
    return made(pushes_, arguments, push_of);
  }

  SavedOrders saved() const override {
    std::vector<Types> seen;
    {
      const std::scoped_lock lock(mutex_);
      seen = seen_;
    }
    if (seen.empty())
      throw Error(ErrorCode::failed_precondition,
                  "a Postern program is saved for the types with which it has run, and it has not "
                  "run yet");
    SavedOrders all;
    for (const Types& types : seen) save_orders(types, all);
    return all;
  }

 private:
  /// With a result to wait for where the function has none.
  struct Waited {
    LeavesFunction f;
    std::pair<Leaves, Leaves> operator()(const Leaves& x) const {
      const Leaves y = f(x);
      return {y, any_elements(y) ? Leaves() : Leaves{zeros(type<bool>())}};
    }
  };
  static constexpr std::int64_t orders = 3;  // values, derivatives, second derivatives

  void see(const TorchTensors& arguments) const {
    const std::scoped_lock lock(mutex_);
    if (last_ < seen_.size() && fit(seen_[last_], arguments)) return;
    const auto found = std::find_if(seen_.begin(), seen_.end(),
                                    [&](const Types& types) { return fit(types, arguments); });
    last_ = static_cast<std::size_t>(found - seen_.begin());
    if (found == seen_.end()) seen_.push_back(types_of(arguments));
  }

  template <class Make>
  ProgramPtr made(std::map<std::size_t, ProgramPtr>& all, std::size_t arguments, Make make) const {
    const std::scoped_lock lock(mutex_);
    ProgramPtr& program = all[arguments];
    if (!program) program = traced(make(f_, arguments));
    return program;
  }

  /// A derivative that there is not is left out: who asks for it hears so.
  void save_orders(Types types, SavedOrders& all) const {
    LeavesFunction f = f_;
    for (std::int64_t order = 0; order < orders; ++order) {
      const std::size_t count = types.size();
      try {
        Leaves leaves;
        for (const Type& t : types) leaves.push_back(abstract(t));
        const Lowered lowered = jit(f).lower(leaves);
        all.emplace_back(order, saved_text(lowered));
        for (const Type& t : lowered.outputs())
          if (is_differentiable(t.dtype)) types.push_back(t);
      } catch (const TypeError&) {
        if (order == 0) throw;
        return;
      }
      if (types.size() == count) return;
      f = pull_of(f, count);
    }
  }

  const LeavesFunction f_;
  const Jitted<Waited> jitted_;
  mutable std::mutex mutex_;
  mutable std::map<std::size_t, ProgramPtr> pulls_, pushes_;
  mutable std::vector<Types> seen_;
  mutable std::size_t last_ = 0;
};

class FromFile : public Program {
 public:
  using Orders = std::shared_ptr<const std::vector<std::vector<Loaded>>>;
  FromFile(Orders orders, std::size_t order, SavedOrders saved = {})
      : orders_(std::move(orders)), order_(order), saved_(std::move(saved)) {}

  TorchTensors compute(const TorchTensors& arguments) const override {
    std::string has;
    if (order_ < orders_->size())
      for (const Loaded& program : (*orders_)[order_]) {
        if (fit(program.inputs(), arguments))
          return taken_apart(run(program, lent_all(arguments)), arguments);
        has += (has.empty() ? "" : ", ") + to_string(std::span(program.inputs()));
      }
    const Types types = types_of(arguments);
    throw TypeError(std::string("a loaded program has no ") +
                    (order_ ? "derivative of order " + std::to_string(order_) : "form") + " for " +
                    to_string(std::span(types)) + "; it has " +
                    (has.empty() ? "none at all" : "those for " + has));
  }
  ProgramPtr pull(std::size_t) const override {
    return std::make_shared<FromFile>(orders_, order_ + 1);
  }
  ProgramPtr push(std::size_t) const override {
    throw NoForwardMode(
        ErrorCode::unimplemented,
        "a loaded program has no derivative in torch's forward mode, only those in reverse "
        "mode that its file has");
  }
  SavedOrders saved() const override {
    if (!saved_.empty()) return saved_;
    throw Error(ErrorCode::unimplemented,
                "a program that was loaded from a file of its own cannot be saved as a part of a "
                "scripted module; keep its file");
  }

 private:
  /// Where there is no result to wait for, as a run that can be waited for.
  static Leaves run(const Loaded& program, const Leaves& x) {
    const auto& out = program.outputs();
    const bool any =
        std::any_of(out.begin(), out.end(), [](const Type& t) { return t.size() > 0; });
    return any ? program.run(x) : program.start(x).result();
  }

  Orders orders_;
  std::size_t order_;
  SavedOrders saved_;
};

}  // namespace

ProgramPtr traced(LeavesFunction f) { return std::make_shared<Traced>(std::move(f)); }

ProgramPtr loaded(std::vector<std::vector<Loaded>> orders, SavedOrders saved) {
  return std::make_shared<FromFile>(
      std::make_shared<const std::vector<std::vector<Loaded>>>(std::move(orders)), 0,
      std::move(saved));
}

Tensor lent(const at::Tensor& dense) {
  Type type = type_of(dense);
  if (type.size() == 0) return Tensor(type, &type);
  // Not the tensor, whose graph would end where XLA lets go of the memory.
  return Tensor::borrow(type, dense.data_ptr(), [memory = dense.storage()] {});
}

at::Tensor taken(const Tensor& tensor) {
  if (tensor.size() == 0) {
    static std::int64_t nothing;
    return over(&nothing, tensor.dims(), tensor.dtype()).clone();
  }
  DLManagedTensor* const managed = to_dlpack(tensor);
  const at::IntArrayRef sizes(tensor.dims());
  return at::from_blob(
      managed->dl_tensor.data, sizes, [managed](void*) { managed->deleter(managed); },
      at::TensorOptions(scalar_type_of(tensor.dtype())));
}

}  // namespace postern::torch::detail
