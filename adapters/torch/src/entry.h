// One entry of a call's host function: its operands as tensors, where the batch is, and how results
// are written.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "site.h"

namespace postern::torch {

using Views = std::span<const AnyView>;
using MutableViews = std::span<const AnyMutableView>;
using Sizes = std::vector<std::int64_t>;

std::int64_t count_of(const Sizes& sizes);
bool all_ones(const Sizes& sizes);
/// The extents before the declared ones.
Sizes leading(std::span<const std::int64_t> dims, const Type& declared);
/// How often each has been written to.
using Versions = std::vector<std::int64_t>;
Versions versions_of(const TorchTensors& tensors);
/// Throws where a function has written to an operand since.
void check_unchanged(const TorchTensors& operands, const Versions& before);

/// Operands as tensors over the program's memory, and what became of that memory.
class Operands {
 public:
  /// `batch`: expand to it, and make it one axis if `flat`; empty: as they are.
  Operands(Views views, const std::vector<Type>& declared, const Sizes& batch, bool flat);

  Operands(const Operands&) = delete;
  ~Operands();

  std::vector<c10::Storage> storages() const;

  void check_unchanged() const;

  /// What somebody has kept becomes memory of its own.
  void release();
  /// For a graph, which is pointed at the program's memory when it is used.
  void leave() { memory_.clear(); }

  TorchTensors tensors;

 private:
  static at::Tensor expanded(const at::Tensor& blob, const Type& declared, const Sizes& batch,
                             bool flat);
  TorchTensors memory_;
};

/// One entry: where the batch is, and what is to be done about it.
struct Entry {
  Entry(const Site& s, Views x, MutableViews y, const std::vector<Type>& x_types,
        const std::vector<Type>& y_types);

  /// Of the first operands alone, which a derivative has from its function; empty where they have
  /// none, although the derivative's other operands do.
  Sizes batch_of_first(std::size_t count) const;

  /// The levels for whose elements the function was called once, as for many directions at one
  /// point; none where that makes no difference: it drew no random numbers. Of a derivative.
  Sizes levels_at_one_point() const;

  /// Of a derivative.
  std::int64_t ticket() const;

  Sizes result_dims(std::size_t i) const;

  void write_all(const TorchTensors& y) const;

  std::optional<std::int64_t> vmap_size() const;

  const Site& site;
  Views operands;
  MutableViews results;
  const std::vector<Type>&in, &out;
  Sizes batch;
  bool flat;
};

}  // namespace postern::torch
