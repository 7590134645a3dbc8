// Prints as JSON: format, options and what is known of the values.
#include <iostream>

#include "file/described_json.h"
#include "print/print_job.h"

namespace postern::internal::file {

namespace {

using detail::PrintNode;
using host::FormatPiece;
using host::PrintJob;

constexpr int deepest = 100;

/// Before it is read: what reads a value calls itself for its parts.
void check_depth(const Json& node, int depth = 0) {
  check(depth < deepest, "a print's value is nested too deep");
  if (!node.is_object() || !node.contains("parts")) return;
  for (const Json& part : node["parts"]) check_depth(part, depth + 1);
}

void check_node(const PrintNode& node) {
  const std::size_t named_parts = node.kind == PrintNode::Kind::named ? node.parts.size() : 0;
  check(node.names.size() == named_parts, "a print's value has not one name for each part");
  const bool may_have_parts = node.kind > PrintNode::Kind::text;  // of the kinds the last ones
  check(node.parts.empty() || may_have_parts, "a print's value cannot have parts");
  for (const PrintNode& part : node.parts) check_node(part);
}

}  // namespace

std::string why_not_saved(const PrintJob& job) {
  if (job.options.log) return "its option log is a function of this process";
  const std::ostream* const stream = job.options.stream;
  if (stream && stream != &std::cout && stream != &std::cerr)
    return "its stream is of this process";
  return "";
}

Json written(std::ostream* stream) {
  if (stream == &std::cout) return "cout";
  if (stream == &std::cerr) return "cerr";
  return "";
}
void read(const Json& json, std::ostream*& stream) {
  const auto name = json.get<std::string>();
  stream = nullptr;
  if (name == "cout") stream = &std::cout;
  if (name == "cerr") stream = &std::cerr;
}

Json to_json(const PrintJob& job) { return written_fields(job); }

std::shared_ptr<const detail::HostFunction> print_from(const Json& json,
                                                       std::span<const Type> operands) {
  for (const Json& v : json.at("values")) check_depth(v.at("value"));
  PrintJob job;
  read_fields(json, "a print", job);
  for (const detail::PrintValue& v : job.values) check_node(v.node);
  for (const FormatPiece& piece : job.pieces) {
    check(piece.value >= -1 && piece.value < static_cast<int>(job.values.size()),
          "a print has no value {}", piece.value);
    check(host::is_reasonable(piece.spec), "a print's specification '{}' is out of range",
          piece.spec);
  }
  check(!job.whole || job.values.size() == 1, "a print of one value has {}", job.values.size());
  host::make_ready("load", job, operands);
  return host::function_of(std::move(job));
}

}  // namespace postern::internal::file
