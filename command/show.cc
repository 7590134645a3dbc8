// postern show.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "commands.h"

namespace command {

namespace pn = postern;
using Json = nlohmann::json;

namespace {

const char* text_of(pn::Effect effect) {
  switch (effect) {
    case pn::Effect::pure: return "pure";
    case pn::Effect::unordered: return "unordered";
    case pn::Effect::ordered: return "ordered";
  }
  return "?";
}

Json types(const std::vector<pn::Type>& list) {
  Json out = Json::array();
  for (const pn::Type& t : list) out.push_back(pn::to_string(t));
  return out;
}

/// "(x: f32[2], f32[])"; many, with their names, in a line each.
std::string with_names(const std::vector<pn::Type>& types, const std::vector<std::string>& names) {
  constexpr std::size_t few = 4;
  const bool named =
      std::ranges::any_of(names, [](const std::string& name) { return !name.empty(); });
  const char* const between = named && types.size() > few ? ",\n            " : ", ";
  std::string out;
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (i > 0) out += between;
    if (!names[i].empty()) out += names[i] + ": ";
    out += pn::to_string(types[i]);
  }
  return "(" + out + ")";
}

}  // namespace

int show(const std::string& path, const std::string& entry, bool operations, bool json) {
  const pn::Loaded program = pn::load(path, {.entry = entry});
  if (json) {
    Json sites = Json::array();
    for (const pn::SavedSite& s : program.sites())
      sites.push_back({{"kind", s.kind},
                       {"name", s.name},
                       {"function", s.function},
                       {"attributes", pn::to_string(s.attributes)},
                       {"operands", types(s.operands)},
                       {"results", types(s.results)},
                       {"effect", text_of(s.effect)},
                       {"place", pn::to_string(s.place)}});
    Json listed = Json::array();
    if (operations)
      for (const pn::LoadedOperation& at : program.operations())
        listed.push_back({{"name", at.name},
                          {"operation", at.operation},
                          {"results", types(at.results)},
                          {"place", pn::to_string(at.place)}});
    std::cout << Json{{"inputs", types(program.inputs())},
                      {"outputs", types(program.outputs())},
                      {"input_names", program.input_names()},
                      {"output_names", program.output_names()},
                      {"sites", sites},
                      {"operations", listed},
                      {"functions", program.required_functions()}}
                     .dump(2)
              << '\n';
    return ok;
  }
  std::cout << fmt::format("inputs     {}\noutputs    {}\n",
                           with_names(program.inputs(), program.input_names()),
                           with_names(program.outputs(), program.output_names()));
  for (const pn::SavedSite& s : program.sites())
    std::cout << fmt::format("{:<10} {}{}{}  {} -> {}  {}, {}\n", s.kind, s.name,
                             s.function.empty() ? "" : " -> " + s.function,
                             s.attributes.items().empty() ? "" : " " + pn::to_string(s.attributes),
                             pn::to_string(s.operands), pn::to_string(s.results), text_of(s.effect),
                             pn::to_string(s.place));
  const auto functions = program.required_functions();
  std::cout << "functions  "
            << (functions.empty() ? "none" : fmt::format("{}", fmt::join(functions, ", "))) << '\n';
  if (operations)
    for (const pn::LoadedOperation& at : program.operations())
      if (!at.constant)
        std::cout << fmt::format("{}  {} {}, {}\n", at.name.empty() ? "-" : at.name, at.operation,
                                 pn::to_string(at.results), pn::to_string(at.place));
  return ok;
}

}  // namespace command
