// expect: must have a word for each value
#include "core/described.h"

enum class Colour : std::uint8_t { red, green, blue };
template <>
struct postern::internal::Words<Colour> {
  static constexpr const char* all[] = {"red", "green"};
};
std::string text() { return postern::internal::text_of(Colour::red); }
