// What a print does each time it fires. All of it is data, but for streams and functions that take
// its lines.
#pragma once
#include <postern/host.h>
#include <postern/print.h>

#include <memory>

#include "core/described.h"
#include "print/print_text.h"

namespace postern::internal {

template <>
struct Described<PrintOptions> {
  using O = PrintOptions;
  static constexpr auto fields = std::tuple(
      field("stream", &O::stream), field("label", &O::label), field("precision", &O::precision),
      field("threshold", &O::threshold), field("edge_items", &O::edge_items),
      field("suppress", &O::suppress), field("show_device", &O::show_device),
      field("device", &O::device), field("header", &O::header),
      // Marks those of the site, which has them already.
      transient("ordered", &O::ordered), transient("one_order", &O::one_order),
      transient("partitioned", &O::partitioned), transient("every", &O::every),
      transient("process", &O::process),
      // Marks what is of this process: what is traced, and a function.
      transient("map", &O::map), transient("log", &O::log));
};

template <>
struct Words<detail::PrintNode::Kind> {
  static constexpr const char* all[] = {"leaf", "text", "tuple", "list", "named"};
};
template <>
struct Described<detail::PrintNode> {
  using N = detail::PrintNode;
  static constexpr auto fields =
      std::tuple(field("kind", &N::kind),
                 field("known", &N::known).when([](const N& n) { return n.kind == N::Kind::text; }),
                 field("names", &N::names).when([](const N& n) { return !n.names.empty(); }),
                 field("parts", &N::parts).when([](const N& n) { return !n.parts.empty(); }));
};
template <>
struct Described<detail::PrintValue> {
  using V = detail::PrintValue;
  static constexpr auto fields = std::tuple(field("name", &V::name), field("value", &V::node));
};
template <>
struct Described<host::FormatPiece> {
  using F = host::FormatPiece;
  static constexpr auto fields =
      std::tuple(field("text", &F::text), field("value", &F::value), field("spec", &F::spec),
                 field("placeholder", &F::placeholder));
};

}  // namespace postern::internal

namespace postern::internal::host {

struct PrintJob {
  PrintOptions options = {};
  std::vector<FormatPiece> pieces = {};  // for print
  std::vector<detail::PrintValue> values = {};
  bool whole = false;                        // print_value: the first value as it is
  std::vector<std::size_t> first_leaf = {};  // of each value

  void operator()(const TapInfo& info, std::span<const AnyView> leaves) const;
  std::string line(std::span<const AnyView> leaves) const;
};

/// Finds each value's leaves, checks the options, and formats zeros once: a specification that fits
/// now fits always. Throws TypeError.
void make_ready(const char* who, PrintJob& job, std::span<const Type> leaves);

std::shared_ptr<const detail::HostFunction> function_of(PrintJob job);
/// Returns what such a function does; null for all other functions.
const PrintJob* print_job_of(const detail::HostFunction* function);

}  // namespace postern::internal::host

template <>
struct postern::internal::Described<postern::internal::host::PrintJob> {
  using J = host::PrintJob;
  static constexpr auto fields = std::tuple(
      field("options", &J::options), field("whole", &J::whole), field("pieces", &J::pieces),
      field("values", &J::values), transient("first_leaf", &J::first_leaf));  // make_ready finds it
};
