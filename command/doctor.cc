// postern doctor.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "commands.h"

namespace command {

namespace pn = postern;
using Json = nlohmann::json;

namespace {

struct Check {
  std::string name, what, cure;  // cure: empty when all is well
};

/// A program that is compiled, run, and calls back.
Check self_test() {
  int calls = 0;
  const auto f = pn::jit([&](pn::Tensor x) {
    return pn::call(
        x.type(),
        [&](pn::View<const float> in, pn::View<float> out) {
          ++calls;
          out[0] = in[0] + 1;
        },
        x * 2.0f);
  });
  const float got = f(pn::tensor<float>({3})).to_vector<float>().at(0);
  if (got == 7 && calls == 1)
    return {"self-test", "a compiled program called a function of this process and got its result",
            ""};
  return {"self-test",
          fmt::format("a compiled program gave {} in place of 7, with {} calls", got, calls),
          "the plug-in is not to be trusted"};
}

/// What the process has of one platform.
void check_platform(const pn::PluginInfo& plugin, std::vector<Check>& checks) {
  const std::vector<pn::DeviceInfo> devices = pn::devices(plugin.platform);
  checks.push_back({"plug-in", plugin.path, ""});
  checks.push_back({"PJRT", fmt::format("{}.{}", plugin.api_major, plugin.api_minor), ""});
  checks.push_back({"devices", fmt::format("{} of kind {}", devices.size(), plugin.platform), ""});
  checks.push_back(plugin.calls_back
                       ? Check{"calls", "compiled programs can call functions of the process", ""}
                       : Check{"calls",
                               "compiled programs cannot call back: those with calls run in stages",
                               ""});
  checks.push_back({"extensions", fmt::format("{}", fmt::join(plugin.extensions, ", ")), ""});
  checks.push_back({"memory", fmt::format("{}", fmt::join(plugin.memory_kinds, ", ")), ""});
  const pn::DeviceScope there(devices.front().ordinal);
  checks.push_back(self_test());
}

Check cache() {
  const char* folder = std::getenv("POSTERN_CACHE_DIR");
  if (!folder || !*folder)
    return {"cache",
            "none: programs are compiled in each process anew (POSTERN_CACHE_DIR names a folder)",
            ""};
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const bool writable = !error && access(folder, W_OK | X_OK) == 0;
  return {"cache", folder,
          writable ? "" : "the folder cannot be written: choose another with POSTERN_CACHE_DIR"};
}

}  // namespace

int doctor(bool json) {
  std::vector<Check> checks{{"postern", POSTERN_VERSION, ""}};
  try {
    std::string last;
    for (const pn::DeviceInfo& device : pn::devices())
      if (std::exchange(last, device.kind) != device.kind)
        check_platform(pn::plugin_info(device.kind), checks);
  } catch (const std::exception& e) {
    checks.push_back(
        {"plug-in", e.what(),
         "name a PJRT plug-in that can be used here with POSTERN_PLUGIN; scripts/bootstrap "
         "fetches the usual one"});
  }
  checks.push_back(cache());
  bool well = true;
  Json list = Json::array();
  for (const Check& c : checks) {
    well = well && c.cure.empty();
    list.push_back({{"name", c.name}, {"what", c.what}, {"ok", c.cure.empty()}, {"cure", c.cure}});
    if (!json)
      std::cout << fmt::format("{:<10} {}  {}\n", c.name, c.cure.empty() ? "ok" : "!!", c.what)
                << (c.cure.empty() ? "" : fmt::format("{:<14} {}\n", "", c.cure));
  }
  if (json) std::cout << Json{{"ok", well}, {"checks", list}}.dump(2) << '\n';
  return well ? ok : failed;
}

}  // namespace command
