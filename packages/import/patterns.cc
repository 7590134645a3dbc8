// Finding operations by patterns, see Loaded::with_tap.
#include <algorithm>
#include <set>

#include "interpreter.h"

namespace postern::internal::imported {

namespace {

/// `*` stands for any text, `?` for a character.
bool fits(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = pattern.npos, behind = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      behind = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != pattern.npos) {
      p = star + 1;
      t = ++behind;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == pattern.npos;
}

/// Whether it fits a path, or what follows on one of its slashes.
bool fits_path(std::string_view pattern, std::string_view path) {
  if (path.empty()) return false;
  for (std::size_t i = 0;; ++i) {
    if (fits(pattern, path.substr(i))) return true;
    i = path.find('/', i);
    if (i == path.npos) return false;
  }
}

bool matches(std::string_view pattern, const LoadedOperation& at) {
  if (fits_path(pattern, at.name)) return true;
  const std::string_view all = at.operation;
  const std::size_t space = std::min(all.find(' '), all.size());
  const std::string_view kind = all.substr(0, space);
  if (fits(pattern, all) || fits(pattern, kind) || fits(pattern, kind.substr(kind.find('.') + 1)))
    return true;
  if (space < all.size() && fits(pattern, all.substr(space + 1))) return true;
  if (!at.place.known()) return false;
  const std::string line = fmt::format(":{}", at.place.line);
  return fits(pattern, line) || fits_path(pattern, at.place.file + line);
}

}  // namespace

void require_match(const std::string& pattern, std::span<const LoadedOperation> all) {
  if (std::ranges::any_of(all, [&](const auto& at) { return matches(pattern, at); })) return;
  constexpr std::size_t most = 10;
  std::set<std::string> names;
  for (const LoadedOperation& at : all) names.insert(at.name.empty() ? at.operation : at.name);
  const std::size_t count = names.size();
  if (count > most) names.erase(std::next(names.begin(), most), names.end());
  throw_type_error(fmt::format("no operation of the program matches '{}'; there are {}{}", pattern,
                               names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")),
                               count > most ? fmt::format(" and {} more", count - most) : ""));
}

Around around_of(std::vector<Change> changes) {
  if (changes.empty()) return {};
  return [changes = std::move(changes)](const LoadedOperation& at, std::span<const Tensor> operands,
                                        const std::function<Values()>& compute) {
    const auto through = [&](const auto& self, std::size_t i) -> Values {
      if (i == 0) return compute();
      const Change& change = changes[i - 1];
      if (!matches(change.pattern, at)) return self(self, i - 1);
      return change.around(at, operands, [&] { return self(self, i - 1); });
    };
    return through(through, changes.size());
  };
}

}  // namespace postern::internal::imported
