// Opening the live page's package when somebody asks for it.
#include "run/live_page.h"

#include <fmt/format.h>

#include <charconv>

#include "core/check.h"
#include "core/fork.h"
#include "core/known_programs.h"
#include "core/log.h"
#include "core/program.h"
#include "platform/find_plugin.h"
#include "platform/package.h"
#include "platform/platform.h"

namespace postern {
using namespace internal;

namespace {

std::atomic<const live::Page*> known_page{nullptr};

const live::Page& page(const char* what) {
  return *platforms::brought_by(known_page, "live", what, fmt::format("{}: ", what));
}

/// Reads "7373" or "0.0.0.0:7373".
ServeOptions options_from(const std::string& wish) {
  ServeOptions options;
  const std::size_t colon = wish.rfind(':');
  const std::string port = wish.substr(colon + 1);  // all of it where there is no colon
  if (colon != std::string::npos) options.address = wish.substr(0, colon);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), options.port);
  check(error == std::errc() && end == port.data() + port.size(),
        "POSTERN_SERVE must be a port or address:port, got '{}'", wish);
  return options;
}

/// Makes what is thrown a warning, but for one: that the process serves already is no matter.
void try_to(void (*start)()) noexcept {
  try {
    start();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::already_exists) log(LogLevel::warning, "{}", e.what());
  } catch (const std::exception& e) {
    log(LogLevel::warning, "{}", e.what());
  }
}

}  // namespace

Served serve(const ServeOptions& options, Place place) {
  PlaceScope at(place);
  refuse_forked();
  check(options.port >= 0 && options.port <= 65535, "serve: port must be from 0 to 65535, got {}",
        options.port);
  check(options.per_second >= 0.1 && options.per_second <= 10,
        "serve: per_second must be from 0.1 to 10, got {}", options.per_second);
  return page("serve").serve(options);
}

void stop_serving() {
  if (const live::Page* const opened = known_page.load()) opened->stop();
}

int detail::attach_socket(long process) { return page("attach").attach_socket(process); }

void live::set_page(const Page& opened) { known_page = &opened; }

void live::start_from_environment() noexcept {
  const char* const attach = platforms::environment("POSTERN_ATTACH");
  if (attach && std::string_view(attach) == "1")
    try_to([] { page("POSTERN_ATTACH").listen_for_attach(); });
  if (platforms::environment("POSTERN_SERVE"))
    try_to([] { postern::serve(options_from(platforms::environment("POSTERN_SERVE"))); });
}

std::optional<std::string> live::program_text(std::uint64_t number) {
  for (const KnownProgram& known : known_programs(number - 1)) {
    if (known.number != number) break;
    if (const auto program = known.program.lock())
      return to_string(*program, std::string(platforms::current().name));
  }
  return {};
}

}  // namespace postern
