// Saving and loading: comment lines, then the module.
//   // postern program FORMAT, postern VERSION
//   // checksum DIGEST of all that follows
//   // about JSON: name, types
//   // site JSON, for each
//   // block JSON, for each
#include <postern/devices.h>
#include <postern/file.h>

#include <algorithm>
#include <optional>
#include <set>

#include "core/check.h"
#include "core/digest.h"
#include "core/lists.h"
#include "core/once.h"
#include "core/process_sharding.h"
#include "file/block_json.h"
#include "file/described_json.h"
#include "file/loaded.h"
#include "file/site_json.h"
#include "host/run_state.h"
#include "host/text_file.h"
#include "print/print_job.h"
#include "run/compiled.h"
#include "run/library.h"
#include "shard/processes.h"

namespace postern {
using namespace internal;

namespace {

using file::Json;

constexpr int format = 1, open_format = 2;  // of open sizes
constexpr const char* version = POSTERN_VERSION;
constexpr std::string_view first_words = "// postern program ", checksum_words = "// checksum ",
                           about_words = "// about ", site_words = "// site ",
                           block_words = "// block ";

/// Throws TypeError for functions that the file cannot have: neither Named nor prints of their own.
void refuse_closures(const Module& module) {
  std::string list;
  for (const SitePtr& s : module.sites) {
    if (!s->named.name.empty() || !s->enters() || s->function == disabled()) continue;
    const host::PrintJob* const print = host::print_job_of(s->function.get());
    const std::string why = print ? file::why_not_saved(*print) : "";
    if (print && why.empty()) continue;
    list += fmt::format("{}{}{}", list.empty() ? "" : ", ", host::describe(*s),
                        why.empty() ? "" : fmt::format(" ({})", why));
  }
  check(list.empty(),
        "save: functions that are no Named cannot be saved: {}. Give each a name with "
        "register_function and use Named in the program",
        list);
}

[[noreturn]] void refuse(ErrorCode code, const std::string& name, std::string_view why) {
  throw Error(code, fmt::format("load: {}: {}", name, why));
}

/// The next line, without its end.
std::string_view take_line(std::string_view& text) {
  const auto end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::string_view after(std::string_view line, std::string_view words, const std::string& name) {
  if (!line.starts_with(words))
    refuse(ErrorCode::invalid_argument, name, fmt::format("a line must begin with '{}'", words));
  return line.substr(words.size());
}

Json over_devices(const Module& module) {
  return {{"devices", module.devices},
          {"mesh", file::written(module.mesh)},
          {"inputs", file::written(module.parameter_shardings)},
          {"outputs", file::written(module.result_shardings)},
          {"output_ends", module.result_ends}};
}

/// Which devices the module runs on and how its arguments lie there: each mesh must be of all of
/// them.
void read_over_devices(Module& module, const Json& json, std::size_t inputs) {
  module.devices = file::exactly<std::vector<int>>(json.at("devices"));
  module.mesh = file::mesh_from(json.at("mesh"));
  file::read(json.at("inputs"), module.parameter_shardings);
  file::read(json.at("outputs"), module.result_shardings);
  module.result_ends = file::exactly<std::vector<std::size_t>>(json.at("output_ends"));
  const std::size_t outputs = module.results.size();
  check(module.devices.size() > 1 && module.parameter_shardings.size() == inputs &&
            module.result_shardings.size() == outputs && module.result_ends.size() == outputs,
        "a program over several devices has not a sharding for each argument and result");
  auto on_all = [&](const Mesh& mesh) {
    return mesh.devices().size() == module.devices.size() &&
           std::ranges::is_permutation(mesh.devices(), module.devices);
  };
  check(on_all(module.mesh), "a mesh is not of the program's devices");
  for (const auto* list : {&module.parameter_shardings, &module.result_shardings})
    for (const auto& s : *list)
      check(!s || on_all(s->mesh()), "a mesh is not of the program's devices");
  check(std::ranges::is_sorted(module.result_ends), "the places of results are out of order");
}

/// How arguments and results lie over processes, of which the text has one's parts.
Json over_processes(const run::ProgramModule& module) {
  Json inputs = Json::array();
  for (const int i : module.parameters)
    inputs.push_back(file::written(module.global_inputs[size_of(i)]));
  Json out = {{"inputs", std::move(inputs)}, {"outputs", file::written(module.global_results)}};
  for (Json& list : out)
    for (Json& sharding : list)
      if (module.any_number && !sharding.is_null()) file::of_all_processes(sharding);
  return out;
}

/// A site as the file has it: of processes, it says whether it is for any number of them.
Json site_to_json(const SiteSpec& site, bool any_number) {
  if (!any_number || site.named.name != process_call) return file::to_json(site);
  SiteSpec out = site;
  out.named.attributes.set("any_number", true);
  return file::to_json(out);
}
void read_over_processes(run::ProgramModule& module, const Json& json, std::size_t inputs) {
  file::read(json.at("inputs"), module.global_inputs);
  file::read(json.at("outputs"), module.global_results);
  check(module.global_inputs.size() == inputs &&
            module.global_results.size() == module.results.size(),
        "a program over processes says not of each argument and result how it lies");
}

/// For who runs the program: of wholes.
std::vector<Type> whole_types(std::vector<Type> types,
                              const std::vector<std::optional<Sharding>>& over) {
  for (std::size_t i = 0; i < over.size(); ++i)
    if (over[i]) types[i] = global_type(*over[i], types[i]);
  return types;
}

/// Shortens the paths of all places in it. A print's header may have their keys too, with texts.
void shorten_places(Json& json, const SaveOptions& options, const std::filesystem::path& root) {
  if (json.is_object() && json.size() == 2 && json.contains("file") && json.contains("line") &&
      json["line"].is_number()) {
    if (options.places == SaveOptions::Places::none) json = file::written(Place());
    const std::filesystem::path file = json["file"].get<std::string>();
    if (file.is_relative()) return;
    const std::filesystem::path near = file.lexically_normal().lexically_relative(root);
    json["file"] = (near.empty() || *near.begin() == ".." ? file.filename() : near).string();
  }
  if (json.is_structured())
    for (Json& part : json) shorten_places(part, options, root);
}

/// The module with marks where blocks begin and end, and at its own beginning.
std::string marked_text(const Module& module) {
  std::string out = "${=m}";
  std::size_t done = 0, number = 0;
  const auto mark = [&](std::size_t to) {
    out += file::Template::escaped(std::string_view(module.text).substr(done, to - done));
    out += fmt::format("${{={}}}", number++);
    done = to;
  };
  for (const Module::Kept& k : module.kept) {
    mark(k.begin);
    mark(k.end);
  }
  return out + file::Template::escaped(std::string_view(module.text).substr(done));
}
/// A block whose places are these marks.
std::string marked_places(std::string line, std::size_t block) {
  std::size_t number = 2 * block;  // as marked_text counts
  for (const std::string_view key : {"\"begin\":", "\"end\":"}) {
    const std::size_t from = line.find(key) + key.size();
    const std::size_t to = line.find_first_not_of("0123456789", from);
    line.replace(from, to - from, fmt::format("${{@{}}}", number++));
  }
  return line;
}

/// The program's name and types, and how these lie. Of what lies over processes a part's type.
Json about_program(const Lowered& program, const run::ProgramModule& module) {
  Json about = {{"name", program.program().internal()->name},
                {"inputs", Json::array()},
                {"outputs", file::written(module.results)}};
  std::vector<Type> inputs = program.program().inputs();
  for (const int i : module.parameters) {
    const auto at = size_of(i);
    const bool over = !module.global_inputs.empty() && module.global_inputs[at];
    about["inputs"].push_back(
        to_string(over ? addressable_type(*module.global_inputs[at], inputs[at]) : inputs[at]));
  }
  if (module.partitioned()) about["over"] = over_devices(module);
  if (!module.global_inputs.empty()) about["over_processes"] = over_processes(module);
  return about;
}

/// What stands behind the checksum; as part of a Template where sizes are open.
std::string body_of(const Lowered& program, const SaveOptions& options, bool open) {
  const auto module = run::lower_for_file(program);
  refuse_closures(*module);
  check(!open || (!module->partitioned() && module->global_inputs.empty()),
        "save: a program over several devices or processes cannot leave sizes open");
  std::string body;
  std::error_code none;  // a working directory that is gone is no folder of files
  const std::filesystem::path root =
      std::filesystem::absolute(options.root.empty() ? "." : options.root, none).lexically_normal();
  const auto line_of = [&](const auto& words, Json json) {
    shorten_places(json, options, root);
    const std::string line =
        fmt::format("{}{}\n", words, file::text_of(json, "save: a name or attribute"));
    if (open) return file::Template::escaped(line);
    return line;
  };
  const auto add = [&](const auto& words, Json json) { body += line_of(words, std::move(json)); };
  add(about_words, about_program(program, *module));
  for (const SitePtr& s : module->sites) add(site_words, site_to_json(*s, module->any_number));
  for (std::size_t i = 0; i < module->kept.size(); ++i) {
    std::string line = line_of(block_words, file::to_json(module->kept[i]));
    if (open) line = marked_places(std::move(line), i);
    body += line;
  }
  if (open) return body + marked_text(*module);
  return body + module->text;
}

}  // namespace

std::string saved_text(const Lowered& program, const SaveOptions& options, Place place) {
  PlaceScope here(place);
  int own = format;
  std::string body;
  if (const auto& open = program.open()) {
    own = open_format;
    body = file::open_text(*open, [&](const Lowered& one) { return body_of(one, options, true); });
  } else {
    body = body_of(program, options, false);
  }
  return sealed(fmt::format("{}{}, postern {}\n{}", first_words, own, version, checksum_words),
                body);
}

void save(const std::filesystem::path& file, const Lowered& program, const SaveOptions& options,
          Place place) {
  PlaceScope at(place);
  host::write_text_file("save", file.string(), saved_text(program, options));
}

static SavedSite described(const SiteSpec& s) {
  return {word_of(s.kind), s.name,   s.named.name, s.named.attributes,
          s.operands,      s.made(), s.effect,     s.place};
}

static std::shared_ptr<detail::LoadedProgram> loaded(std::vector<Type> inputs,
                                                     run::ProgramModule module,
                                                     std::vector<file::SavedBlock> blocks,
                                                     const std::string& name, const Place& place) {
  auto program = std::make_shared<detail::LoadedProgram>();
  program->place = place;
  program->name = name;
  for (const SitePtr& s : module.sites) program->sites.push_back(described(*s));
  program->inputs = whole_types(std::move(inputs), module.global_inputs);
  program->outputs = whole_types(module.results, module.global_results);
  program->input_names.resize(program->inputs.size());
  program->output_names.resize(program->outputs.size());
  program->blocks = std::move(blocks);
  program->module = std::make_shared<const run::ProgramModule>(std::move(module));
  return program;
}

/// Returns a program of another library, with what only those have: FFI handlers, weights, names of
/// arguments and results, sizes that are open in the module itself, a derivative beside it.
static std::shared_ptr<detail::LoadedProgram> loaded_imported(imported::Imported read,
                                                              const std::string& name,
                                                              const Place& place) {
  run::ProgramModule module;
  module.text = std::move(read.text);
  module.results = std::move(read.outputs);
  module.sites = std::move(read.sites);
  module.parameters = std::move(read.parameters);
  auto program = loaded(std::move(read.inputs), std::move(module), {}, name, place);
  program->handlers = std::move(read.handlers);
  program->weights = std::move(read.weights);
  program->input_names = std::move(read.input_names);
  program->output_names = std::move(read.output_names);
  program->open = read.open;
  if (read.vjp) program->vjp = loaded_imported(*read.vjp, name, place);
  return program;
}

/// Returns the format. `first`: the first line's format and who wrote it.
static int format_of(std::string_view first, const std::string& name) {
  const int found = std::atoi(std::string(first.substr(0, 9)).c_str());
  if (found < 1) refuse(ErrorCode::invalid_argument, name, "its first line names no format");
  if (found <= open_format) return found;
  const auto writer = first.find("postern");
  refuse(ErrorCode::unimplemented, name,
         fmt::format(
             "it has format {}, written by {}; this is postern {}, which reads formats up to {}",
             found, writer == std::string_view::npos ? "a later version" : first.substr(writer),
             version, open_format));
}

/// Reads what stands behind the checksum.
static std::shared_ptr<detail::LoadedProgram> loaded_body(std::string_view rest,
                                                          const std::string& name,
                                                          const Place& place) {
  std::vector<Type> inputs;
  run::ProgramModule module;
  std::vector<file::SavedBlock> blocks;
  try {
    const Json about = Json::parse(after(take_line(rest), about_words, name));
    file::read(about.at("inputs"), inputs);
    file::read(about.at("outputs"), module.results);
    while (rest.starts_with(site_words)) {
      const Json json = Json::parse(take_line(rest).substr(site_words.size()));
      module.sites.push_back(std::make_shared<const SiteSpec>(file::site_from(json)));
    }
    while (rest.starts_with(block_words))
      blocks.push_back(file::block_from(Json::parse(take_line(rest).substr(block_words.size()))));
    file::check_places(blocks, rest);
    if (about.contains("over")) read_over_devices(module, about["over"], inputs.size());
    if (about.contains("over_processes"))
      read_over_processes(module, about["over_processes"], inputs.size());
    check(module.result_ends.empty() || module.result_ends.back() <= rest.size(),
          "a result is behind the module's end");
  } catch (const nlohmann::json::exception& e) {
    refuse(ErrorCode::invalid_argument, name, e.what());
  } catch (const TypeError& e) {
    refuse(ErrorCode::invalid_argument, name, e.what());
  }
  module.text = rest;
  for (std::size_t i = 0; i < inputs.size(); ++i) module.parameters.push_back(static_cast<int>(i));
  return loaded(std::move(inputs), std::move(module), std::move(blocks), name, place);
}

/// Reads a file of open sizes as the program of some, but for its types.
static std::shared_ptr<detail::LoadedProgram> loaded_open(std::string_view body,
                                                          const std::string& name,
                                                          const Place& place) {
  const auto reading = [&](const auto& f) {
    try {
      return f();
    } catch (const nlohmann::json::exception& e) {
      refuse(ErrorCode::invalid_argument, name, e.what());
    } catch (const Error& e) {
      refuse(e.code(), name, e.what());
    }
  };
  auto open =
      reading([&] { return std::make_shared<const file::OpenFile>(file::OpenFile::read(body)); });
  file::Sizes some = open->least;  // different ones, from 67 on, as Fitting::samples takes them
  for (std::size_t i = 0; i < some.size(); ++i)
    some[i] = std::max(some[i], 67 + static_cast<std::int64_t>(i));
  auto program = loaded_body(reading([&] { return open->text.at(some); }), name, place);
  if (program->inputs.size() != open->inputs.size() ||
      program->outputs.size() != open->outputs.size())
    refuse(ErrorCode::invalid_argument, name, "its types are not those of its text");
  for (std::size_t i = 0; i < open->inputs.size(); ++i) program->inputs[i] = open->inputs[i].type;
  program->outputs = open->outputs;
  program->open_file = std::move(open);
  return program;
}

std::shared_ptr<const detail::LoadedProgram> file::instance_for(
    const detail::LoadedProgram& program, std::span<const Tensor> arguments) {
  const Sizes sizes = program.open_file->sizes_of(arguments);
  return program.instances.find(fmt::format("{}", fmt::join(sizes, ",")), [&] {
    auto out = loaded_body(program.open_file->text.at(sizes), program.name, program.place);
    out->changes = program.changes;
    return out;
  });
}

// `text`: a file that postern saved, or else a program of another library. Reads of the former, in
// this order: the format, the checksum of all that follows, the types and the mesh, the sites, the
// blocks that may be chosen anew, and as the rest the module. What is returned has been checked
// against itself and is not compiled yet. Throws an Error that names `name`: unimplemented for a
// later format, data_loss for a file that was changed, invalid_argument for what contradicts
// itself.
Loaded load_text(std::string_view text, const std::string& name, const LoadOptions& options,
                 Place place) {
  if (!text.starts_with(first_words))
    return Loaded(
        loaded_imported(imported::reader_for(name).read(text, name, options.entry), name, place));
  if (!options.entry.empty() && options.entry != "main")
    refuse(ErrorCode::not_found, name,
           fmt::format("it has no function '{}': what is saved is one function", options.entry));
  std::string_view rest = text;
  const int found = format_of(take_line(rest).substr(first_words.size()), name);
  const std::string_view sum = after(take_line(rest), checksum_words, name);
  if (digest(rest) != sum)
    refuse(ErrorCode::data_loss, name, "its checksum does not fit: it was changed or cut short");
  if (found == open_format) return Loaded(loaded_open(rest, name, place));
  return Loaded(loaded_body(rest, name, place));
}

Loaded load_text(std::string_view text, const std::string& name, Place place) {
  return load_text(text, name, LoadOptions(), place);
}
Loaded load(const std::filesystem::path& file, const LoadOptions& options, Place place) {
  return load_text(host::read_file("load", file.string()), file.string(), options, place);
}
Loaded load(const std::filesystem::path& file, Place place) {
  return load(file, LoadOptions(), place);
}

}  // namespace postern
