// Places and texts of errors.
#include "core/check.h"

#include <postern/host.h>

#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

#include "core/mutex.h"
#include "core/text.h"
#include "core/value.h"

namespace postern::internal {

static thread_local Place current_place;

PlaceScope::PlaceScope(const Place& place) : outermost_(!current_place.known()) {
  if (outermost_) current_place = place;
}
PlaceScope::~PlaceScope() {
  if (outermost_) current_place = {};
}
const Place& PlaceScope::current() { return current_place; }
PlaceScope::Replace::Replace(const Place& place) : Scoped(current_place, place) {}

Place place_in_file(const std::string& file, std::uint32_t line) {
  static Mutex* const guard = new Mutex;
  static auto* const names = new std::set<std::string>;  // there are few
  std::scoped_lock lock(*guard);
  return {names->insert(file).first->c_str(), "", line};
}

}  // namespace postern::internal

namespace postern {
using namespace internal;

std::string to_string(const Place& place) {
  if (!place.known()) return "?";
  const char* file = place.file;
  if (const char* slash = std::strrchr(file, '/')) file = slash + 1;
  return fmt::format("{}:{}", file, place.line);
}

void internal::throw_type_error(std::string text) {
  text = printable(text);
  if (current_place.known()) text += fmt::format(" (at {})", to_string(current_place));
  throw TypeError(text);
}

std::string internal::readable_name(const std::type_info& type) {
  int status = 0;
  char* text = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  const std::string name = text_or(text, type.name());
  std::free(text);
  return name;
}

const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::ok: return "ok";
    case ErrorCode::cancelled: return "cancelled";
    case ErrorCode::unknown: return "unknown";
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::deadline_exceeded: return "deadline_exceeded";
    case ErrorCode::not_found: return "not_found";
    case ErrorCode::already_exists: return "already_exists";
    case ErrorCode::permission_denied: return "permission_denied";
    case ErrorCode::resource_exhausted: return "resource_exhausted";
    case ErrorCode::failed_precondition: return "failed_precondition";
    case ErrorCode::aborted: return "aborted";
    case ErrorCode::out_of_range: return "out_of_range";
    case ErrorCode::unimplemented: return "unimplemented";
    case ErrorCode::internal: return "internal";
    case ErrorCode::unavailable: return "unavailable";
    case ErrorCode::data_loss: return "data_loss";
    case ErrorCode::unauthenticated: return "unauthenticated";
    case ErrorCode::threw: return "threw";
    case ErrorCode::bad_result: return "bad_result";
    case ErrorCode::timeout: return "timeout";
    case ErrorCode::reentry: return "reentry";
    case ErrorCode::closed: return "closed";
    case ErrorCode::unregistered: return "unregistered";
  }
  return "unknown";
}

void Context::refuse(const std::type_info& asked) const {
  throw TypeError(fmt::format("the context of the run is a {}*, it is asked for as a {}*",
                              readable_name(*type_), readable_name(asked)));
}

std::string detail::origin_of(const TracedValue& value) {
  if (value.place.known()) return " made at " + to_string(value.place);
  return fmt::format(", argument leaf {} of {},", value.index, value.mark->what);
}

}  // namespace postern
