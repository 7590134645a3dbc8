// Programs from elsewhere as functions of tensors: what their operations are here.
#pragma once
#include <postern/arrange.h>
#include <postern/compare.h>
#include <postern/indexing.h>
#include <postern/ops.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "module.h"
#include "reader.h"

namespace postern::internal::imported {

using Values = std::vector<Tensor>;

/// Opens a module, as the library's `open_imported`; lists its operations.
Function open_module(const std::string& text, std::vector<std::shared_ptr<const SiteSpec>> sites,
                     const std::string& name, std::vector<Change> changes);
std::vector<LoadedOperation> operations_in(const std::string& text, const std::string& name);

/// Throws TypeError when none matches.
void require_match(const std::string& pattern, std::span<const LoadedOperation> all);
/// Returns all that is done around operations, the first change nearest to them; nothing for none.
Around around_of(std::vector<Change> changes);

/// The module that is interpreted.
struct Opened : std::enable_shared_from_this<Opened> {
  Opened(const std::string& text, std::string name,
         std::vector<std::shared_ptr<const SiteSpec>> s = {}, Around a = {});
  Module module;
  std::vector<std::shared_ptr<const SiteSpec>> sites;
  Around around;
};

/// The values of a function that are the same whatever its arguments are.
class Constants {
 public:
  /// Takes an operation, those before it having been taken. Returns whether its results are.
  bool take(const Node& node);

 private:
  std::unordered_set<std::string_view> known_;
};

/// The values of a function, while it is interpreted. Tokens are empty Tensors.
class Frame {
 public:
  explicit Frame(const Opened& of, std::string path = "") : opened(of), path_(std::move(path)) {}
  /// Interprets a body, and returns what it returns.
  Values run(const NodeRegion& region, std::span<const Tensor> arguments);
  const Tensor& value(const std::string& name) const;
  /// Returns the operation whose result has that name; null for an argument, and for a result that
  /// something else gave in the operation's place.
  const Node* maker(const std::string& name) const;

  /// Returns a frame for the body of a function that is called there.
  Frame called_by(const Node& node) const;
  /// Returns a frame of the values alone that an operation and its bodies use.
  Frame around(const Node& node) const;
  /// Gives an operation other operands.
  void set(const Node& node, const Values& operands);

  const Opened& opened;

 private:
  Values operands_of(const Node& node) const;
  Values step(const Node& node);
  Values checked_step(const Node& node);
  Values shown_step(const Node& node);
  const std::string path_;  // of names that lead here
  Constants constants_;
  bool applied_ = false;  // the body of an operation that applies it to elements is interpreted
  std::unordered_map<std::string_view, Tensor> values_;
  std::unordered_map<std::string_view, const Node*> makers_;
};

/// An operation on its operands.
struct Step {
  Frame& frame;
  const Node& node;
  const Values& x;
  const Tensor& operator[](std::size_t i) const { return x.at(i); }
  const Module& module() const { return frame.opened.module; }
  /// Returns the type that the text says of a result. Throws Error where it is open.
  Type result(std::size_t i = 0) const;
  /// Returns its element type, which is there also where the type is open.
  DType dtype(std::size_t i = 0) const;
  /// Returns an attribute's integers, by the first of these names that it has.
  Dims integers(std::initializer_list<std::string_view> keys) const {
    return integers_of(node.attribute(keys));
  }
  std::int64_t integer(std::initializer_list<std::string_view> keys) const;
  /// Returns those of a part of a struct.
  Dims part(std::string_view key) const { return integers_of(node.part(key)); }
  /// Interprets one of the node's regions.
  Values region(std::size_t i, std::span<const Tensor> arguments) const {
    return frame.run(module().region(node.regions.at(i)), arguments);
  }
  /// Returns the only operation of a region whose operands are its arguments in order and whose
  /// result is all that it returns; empty for any other region.
  std::string_view only_operation(std::size_t region) const {
    return only_operation(module().region(node.regions.at(region)));
  }
  static std::string_view only_operation(const NodeRegion& body);
};

/// What interprets an operation, or a custom call of a target. Returns nothing where it has no way
/// to: then the operation stays as it is written.
using Rule = Values (*)(const Step& step);
using Rules = std::unordered_map<std::string_view, Rule>;
const Rules& elementwise_rules();
const Rules& shape_rules();
const Rules& index_rules();
const Rules& product_rules();  // and reductions, windows, transforms
const Rules& control_rules();  // and calls
const Rules& lapack_rules();   // linear algebra, also by target

struct AsWritten {
  std::vector<std::string> handlers = {};         // FFI handlers that it calls
  bool constant = false;                          // its results are constants for derivatives
  std::optional<std::int64_t> places_along = {};  // of a sort: one more result, where each was
};
/// Writes the operation as it stands, by its text.
Values as_written(const Step& step, const AsWritten& how = {});

/// What computes an operation's values of others that have a derivative; throws TypeError where
/// there is no way.
using BodyRule = Values (*)(const Step&);
/// Runs an operation so, but `same` where a derivative of it is taken.
Values differentiable(const Step& step, std::function<Values(const Step&)> run, BodyRule same);
using Combine = std::function<Values(const Values& both)>;
/// Returns what the body, of scalars, makes of the tensors over these axes, neighbours first.
Values reduced_by_tree(const Combine& body, const Values& x, const Values& initial,
                       const Dims& axes);
/// Returns what a body of scalars makes of each element.
Values mapped(const Step& s);
Values windows_by_tree(const Step& s);
Values selected_and_scattered(const Step& s);
Values scattered_once(const Step& s);
Values sorted_by_places(const Step& s);
/// Returns how a scatter is to be read, its index vectors along the last axis.
IndexAxes scatter_axes(const Step& s);
Tensor scatter_indices(const Step& s);

}  // namespace postern::internal::imported
