// Saved programs whose sizes are open: one text for all sizes, with what its numbers are of them.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <postern/jit.h>
#include <postern/type.h>
#include "file/sizes.h"

namespace postern::internal::file {

/// A text in which numbers stand as `${n*n-1}`. `${=i}` is a place in it, `${@i}` how far that is
/// behind `${=m}`, `$$` a `$`.
class Template {
 public:
  /// Throws Error for what is none.
  Template(std::string_view text, std::span<const std::string> names);
  std::string at(const Sizes& sizes) const;
  /// Returns it with the numbers alone in place.
  std::string numbers_at(const Sizes& sizes) const;
  static std::string escaped(std::string_view text);

 private:
  struct Part {
    enum class Kind : std::uint8_t { text, number, mark, distance, dollar } kind;
    std::string text;  // of a mark: its name
    Expression number = {};
  };
  std::vector<Part> parts_;
};

/// The file behind its checksum.
struct OpenFile {
  std::vector<std::string> names;
  Sizes least;
  std::vector<std::vector<std::size_t>> differ;  // pairs of sizes that must not be equal
  Template text;
  struct Input {
    Type type;                                    // open extents are -1
    std::vector<std::optional<Expression>> dims;  // of those that are open
    std::string shown;                            // "f32[n,3]"
  };
  std::vector<Input> inputs = {};
  std::vector<Type> outputs = {};

  /// Throws Error or a json exception for what is none.
  static OpenFile read(std::string_view text);
  /// Finds the sizes that arguments have. Throws TypeError unless they fit.
  Sizes sizes_of(std::span<const Tensor> arguments) const;
};

/// Writes it. `body`: of the program at some sizes, its `$` escaped. Throws TypeError for a program
/// that is another one at other sizes.
std::string open_text(const detail::OpenProgram& open,
                      const std::function<std::string(const Lowered&)>& body);

inline constexpr std::string_view open_words = "// open ";

}  // namespace postern::internal::file
