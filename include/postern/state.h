// State of host functions that checkpoints and resumable recordings keep.
//
//   const pn::RegisteredState kept = pn::register_state("engine", engine);
#pragma once
#include <postern/detail/api.h>
#include <postern/place.h>

#include <functional>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace postern {

/// While it lives, checkpoints keep this state and resume() gives it back. No member throws.
class RegisteredState {
 public:
  /// Makes what register_state returns; moved from, it has nothing to keep.
  explicit RegisteredState(std::string name) : name_(std::move(name)) {}
  RegisteredState(RegisteredState&& other) noexcept : name_(std::exchange(other.name_, {})) {}
  RegisteredState& operator=(RegisteredState&&) = delete;
  POSTERN_API ~RegisteredState();

 private:
  std::string name_;  // empty: moved from
};

/// Registers state of the process that belongs into checkpoints: what host functions count, where
/// they are in their data, their random numbers. `save` gives it as bytes; it is called while the
/// program that is kept waits, and by two threads at once where two programs are kept. `load` takes
/// what `save` gave. Both may run programs. Throws TypeError for an empty name,
/// Error(already_exists) for one that is taken.
[[nodiscard]] POSTERN_API RegisteredState register_state(const std::string& name,
                                                         std::function<std::string()> save,
                                                         std::function<void(std::string_view)> load,
                                                         Place place = Place::current());

namespace detail {
/// Written to a stream and read back. Not texts, of which >> reads a word.
template <class T>
concept Streamable = !std::is_convertible_v<T, std::string_view> &&
                     requires(std::ostream & out, std::istream& in, T& object) {
  out << object;
  in >> object;
};
}  // namespace detail

/// Registers an object with << and >>, such as a number or an engine of <random>, which must
/// outlive what this returns. Reading it back throws Error(data_loss) when >> fails.
///
///   std::mt19937 engine;
///   const pn::RegisteredState kept = pn::register_state("engine", engine);
template <detail::Streamable T>
[[nodiscard]] RegisteredState register_state(const std::string& name, T& object,
                                             Place place = Place::current());

namespace detail {
[[noreturn]] POSTERN_API void unreadable_state(const std::string& name);
}

template <detail::Streamable T>
RegisteredState register_state(const std::string& name, T& object, Place place) {
  auto save = [&object] {
    std::ostringstream text;
    text.precision(std::numeric_limits<long double>::max_digits10);
    text << object;
    return std::move(text).str();
  };
  auto load = [name, &object](std::string_view text) {
    std::istringstream in{std::string(text)};
    in >> object;
    if (!in || !(in >> std::ws).eof()) detail::unreadable_state(name);
  };
  return register_state(name, std::move(save), std::move(load), place);
}

}  // namespace postern
