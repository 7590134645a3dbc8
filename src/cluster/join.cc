// The library that carries messages: which one, and loading it.
#include "cluster/join.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <postern/error.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "core/mutex.h"
#include "core/text.h"

namespace postern::internal::clusters {

namespace {

namespace fs = std::filesystem;

Mutex choice_guard;
std::string chosen, joined_by;
std::chrono::milliseconds chosen_patience{10'000};

std::string wanted_library() {
  const std::scoped_lock lock(choice_guard);
  if (!chosen.empty()) return chosen;
  return text_or(std::getenv("POSTERN_CLUSTER"), "");
}

/// A name is looked for beside Postern, then where the system looks; a path is taken as it is.
void* load(const std::string& name) {
  std::vector<std::string> tried;
  if (name.find('/') != std::string::npos) {
    tried = {name};
  } else {
    const std::string file = fmt::format("libpostern_{}.so", name);
    Dl_info info{};
    std::error_code ignored;
    if (dladdr(reinterpret_cast<const void*>(&wanted_library), &info) && info.dli_fname)
      tried.push_back(fs::canonical(info.dli_fname, ignored).parent_path() / file);
    tried.push_back(file);
  }
  std::string why;
  for (const std::string& path : tried) {
    // The parts that an MPI loads in its turn find it among the global symbols.
    if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) return library;
    why += fmt::format("{}{}", why.empty() ? "" : "; ", dlerror());
  }
  throw PluginError(ErrorCode::not_found,
                    fmt::format("cluster '{}': its library cannot be loaded: {}", name, why));
}

const Transport* transport_of(const std::string& name) {
  const auto refuse = [&](ErrorCode code, const std::string& why) {
    throw PluginError(code, fmt::format("cluster '{}': {}", name, why));
  };
  void* const library = load(name);
  const auto open = reinterpret_cast<OpenTransport*>(dlsym(library, "postern_transport"));
  if (!open) refuse(ErrorCode::not_found, "the library has no postern_transport");
  const char* error = nullptr;
  const Transport* const transport = open(&error);
  if (!transport) refuse(ErrorCode::failed_precondition, text_or(error, "it did not say why"));
  if (transport->version != transport_version)
    refuse(ErrorCode::failed_precondition,
           fmt::format("the library is for version {} of the interface, this is {}",
                       transport->version, transport_version));
  return transport;
}

}  // namespace

void choose(const std::string& library, std::chrono::milliseconds patience) {
  const std::scoped_lock lock(choice_guard);
  if (Cluster::joined() && !library.empty() && library != joined_by)
    throw Error(ErrorCode::failed_precondition,
                fmt::format("configure: the cluster is already joined; it cannot be '{}' any more",
                            library));
  chosen = library;
  chosen_patience = patience;
}

std::chrono::milliseconds patience() {
  const std::scoped_lock lock(choice_guard);
  return chosen_patience;
}

bool names_transport() { return !wanted_library().empty(); }

const Transport* open_transport() {
  const std::string name = wanted_library();
  const Transport* const transport = name.empty() ? nullptr : transport_of(name);
  const std::scoped_lock lock(choice_guard);
  joined_by = name;
  return transport;
}

}  // namespace postern::internal::clusters
