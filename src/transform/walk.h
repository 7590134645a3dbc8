// What the walks over programs share: values by number, and programs whose captured tensors come
// first.
#pragma once
#include <algorithm>

#include "trace/trace.h"

namespace postern::internal {

inline bool has_any(TensorSpan tensors) {
  return std::ranges::any_of(tensors, [](const Tensor& t) { return t.has_value(); });
}
inline bool has_all(TensorSpan tensors) {
  return std::ranges::all_of(tensors, [](const Tensor& t) { return t.has_value(); });
}
inline std::vector<bool> present(TensorSpan tensors) {
  std::vector<bool> out;
  for (const Tensor& t : tensors) out.push_back(t.has_value());
  return out;
}
inline std::vector<bool> missing(TensorSpan tensors) {
  std::vector<bool> out = present(tensors);
  out.flip();
  return out;
}
inline Types types_of(TensorSpan tensors) {
  Types out;
  for (const Tensor& t : tensors) out.push_back(t.type());
  return out;
}
/// Marks those that may have a tangent.
inline std::vector<bool> differentiable(const Types& types) {
  std::vector<bool> out;
  for (const Type& type : types) out.push_back(is_differentiable(type.dtype));
  return out;
}
template <class T>
void append(std::vector<T>& to, std::type_identity_t<std::span<const T>> more) {
  to.insert(to.end(), more.begin(), more.end());
}
/// Returns the tensors of all lists, in order.
inline Tensors joined(std::initializer_list<TensorSpan> lists) {
  Tensors out;
  for (const TensorSpan& list : lists) append(out, list);
  return out;
}
/// Returns the tensor as a list of one, of none where it is empty.
inline TensorSpan list_of(const Tensor& x) { return {&x, static_cast<std::size_t>(x.has_value())}; }
/// Returns tensors[i] where `there`; they may end before it elsewhere.
inline Tensor at_if(bool there, TensorSpan tensors, std::size_t i) {
  if (there) return tensors[i];
  return {};
}
/// Returns those that have a value.
inline Tensors kept(TensorSpan tensors) {
  Tensors out;
  for (const Tensor& t : tensors)
    if (t.has_value()) out.push_back(t);
  return out;
}
/// Goes the way back: these tensors, in order, at the places that `mask` marks.
inline Tensors placed(const std::vector<bool>& mask, TensorSpan tensors) {
  Tensors out(mask.size());
  for (std::size_t i = 0, next = 0; i < mask.size(); ++i)
    if (mask[i]) out[i] = tensors[next++];
  return out;
}
/// Returns those that `mask` marks.
template <class List>
auto where_marked(const List& list, const std::vector<bool>& mask, bool mark = true) {
  std::vector<std::decay_t<decltype(list[0])>> out;
  for (std::size_t i = 0; i < mask.size(); ++i)
    if (mask[i] == mark) out.push_back(list[i]);
  return out;
}
inline std::size_t count(const std::vector<bool>& mask) {
  return static_cast<std::size_t>(std::ranges::count(mask, true));
}

/// A Tensor for each value of a program; empty at first.
class Env {
 public:
  explicit Env(const Program& program) : values_(program.types.size()) {}
  Tensor& operator[](ValueId v) { return values_[at(v)]; }
  void set(const std::vector<ValueId>& ids, TensorSpan tensors) {
    for (std::size_t i = 0; i < ids.size(); ++i) values_[at(ids[i])] = tensors[i];
  }
  void set(const Equation& e, Tensors&& results) {
    for (int i = 0; i < e.results; ++i) values_[at(e.first + i)] = std::move(results[at(i)]);
  }
  void get(const std::vector<ValueId>& ids, Tensors& to) const {
    to.clear();
    for (ValueId v : ids) to.push_back(values_[at(v)]);
  }
  Tensors get(const std::vector<ValueId>& ids) const {
    Tensors out;
    get(ids, out);
    return out;
  }

 private:
  Tensors values_;
};

/// Traces a user's function, whose operations have places of their own.
Closed trace_user(const char* what, const Types& types, const TensorFunction& f);

/// Traces and simplifies a program to put into an equation: what it captures are its first inputs.
Closed trace_inner(const char* what, const Types& types, const TensorFunction& f);
/// Does both: of a user's function, to put into an equation.
Closed trace_user_inner(const char* what, const Types& types, const TensorFunction& f);

}  // namespace postern::internal
