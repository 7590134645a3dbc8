// What standard listeners share: reading leaves fast, naming them, knowing where they were seen.
#pragma once
#include <postern/listen.h>

#include <string>
#include <vector>

#include "spi.h"

namespace postern::internal::host {

/// Adds the elements of another summary.
void add(listen::Summary& to, const listen::Summary& from);
listen::Summary summarize_live(const AnyView& view, std::span<const bool> mask);

/// Returns an element as summaries count it: of a complex one the absolute value.
double magnitude(const AnyView& view, std::int64_t i);

/// Adds the finite elements that are alive to `bins` of equal width between `from` and `to`, within
/// which they lie.
void count_bins(const AnyView& view, std::span<const bool> mask, double from, double to,
                std::span<std::uint64_t> bins);

/// Returns where bin i of so many begins, or the last one ends.
double bin_edge(double from, double to, std::size_t i, std::size_t bins);

/// Returns the entry of this leaf among those of a listener, made when it is new.
template <class Entry>
Entry& entry_of(std::vector<Entry>& entries, const TapInfo& info, std::size_t leaf) {
  const std::string_view path = path_of(info, leaf);
  const std::string transforms =
      info.transforms.empty() ? std::string() : postern::to_string(info.transforms);
  for (Entry& e : entries)
    if (same_place(e.place, info.place) && e.device == info.device && e.name == info.name &&
        e.path == path && e.transforms == transforms)
      return e;
  Entry& e = entries.emplace_back();
  e.name = info.name;
  e.path = path;
  e.place = info.place;
  e.device = info.device;
  e.transforms = transforms;
  return e;
}

}  // namespace postern::internal::host
