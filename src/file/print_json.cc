// Prints as JSON: format, options and what is known of the values. Numbers of attributes are
// written as text, which keeps every bit.
#include <iostream>

#include "file/described_json.h"
#include "print/print_job.h"

namespace postern::internal::file {

namespace {

using detail::PrintNode;
using host::FormatPiece;
using host::PrintJob;

constexpr const char* node_kinds[] = {"leaf", "text", "tuple", "list", "named"};
constexpr const char* known_kinds[] = {"int64", "uint64", "double", "bool", "string"};
constexpr int deepest = 100;

Json to_json(const PrintNode& node) {
  Json json = {{"kind", node_kinds[static_cast<int>(node.kind)]}};
  if (node.kind == PrintNode::Kind::text)
    json["known"] = std::visit(
        [&](const auto& v) -> Json {
          const char* kind = known_kinds[node.known.index()];
          if constexpr (std::is_same_v<std::decay_t<decltype(v)>, double>)
            return {{kind, number_text(v)}};
          else
            return {{kind, v}};
        },
        node.known);
  if (!node.names.empty()) json["names"] = node.names;
  for (const PrintNode& part : node.parts) json["parts"].push_back(to_json(part));
  return json;
}

PrintNode node_from(const Json& json, int depth = 0) {
  check(depth < deepest, "a print's value is nested too deep");
  PrintNode node;
  node.kind = static_cast<PrintNode::Kind>(
      index_of("kind of a print's value", node_kinds, json.at("kind").get<std::string>()));
  if (node.kind == PrintNode::Kind::text) {
    const Json& known = json.at("known");
    check(known.is_object() && known.size() == 1,
          "what is known of a print's value must be one value with its kind");
    const Json& v = known.front();
    switch (index_of("kind of number", known_kinds, known.begin().key())) {
      case 0: node.known = v.get<std::int64_t>(); break;
      case 1: node.known = v.get<std::uint64_t>(); break;
      case 2: node.known = number_from(v.get<std::string>()); break;
      case 3: node.known = v.get<bool>(); break;
      default: node.known = v.get<std::string>();
    }
  }
  if (json.contains("names")) node.names = json["names"].get<std::vector<std::string>>();
  if (json.contains("parts"))
    for (const Json& part : json["parts"]) node.parts.push_back(node_from(part, depth + 1));
  check(node.names.size() == (node.kind == PrintNode::Kind::named ? node.parts.size() : 0),
        "a print's value has not one name for each part");
  check(node.parts.empty() || node.kind > PrintNode::Kind::text,
        "a print's value cannot have parts");
  return node;
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

Json to_json(const PrintJob& job) {
  Json json = {{"options", written_fields(job.options)},
               {"whole", job.whole},
               {"pieces", Json::array()},
               {"values", Json::array()}};
  for (const FormatPiece& p : job.pieces)
    json["pieces"].push_back(
        {{"text", p.text}, {"value", p.value}, {"spec", p.spec}, {"placeholder", p.placeholder}});
  for (const detail::PrintValue& v : job.values)
    json["values"].push_back({{"name", v.name}, {"value", to_json(v.node)}});
  return json;
}

std::shared_ptr<const detail::HostFunction> print_from(const Json& json,
                                                       std::span<const Type> operands) {
  PrintJob job;
  read_fields(json.at("options"), "a print", job.options);
  job.whole = json.at("whole").get<bool>();
  for (const Json& v : json.at("values"))
    job.values.push_back({v.at("name").get<std::string>(), node_from(v.at("value"))});
  for (const Json& p : json.at("pieces")) {
    FormatPiece piece{p.at("text").get<std::string>(), p.at("value").get<int>(),
                      p.at("spec").get<std::string>(), p.at("placeholder").get<std::string>()};
    check(piece.value >= -1 && piece.value < static_cast<int>(job.values.size()),
          "a print has no value {}", piece.value);
    check(host::is_reasonable(piece.spec), "a print's specification '{}' is out of range",
          piece.spec);
    job.pieces.push_back(std::move(piece));
  }
  check(!job.whole || job.values.size() == 1, "a print of one value has {}", job.values.size());
  host::make_ready("load", job, operands);
  return host::function_of(std::move(job));
}

}  // namespace postern::internal::file
