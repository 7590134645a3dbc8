// Bytes of all processes are of one program, so they need no description.
#include "merged.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>

#include "spi.h"
#include "summary.h"

namespace postern::internal::host {

namespace {

class Writer {
 public:
  template <class T>
  void add(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void add_text(std::string_view text) {
    add(text.size());
    bytes += text;
  }
  template <class T>
  void add_all(const std::vector<T>& values) {
    add(values.size());
    for (const T& v : values) add(v);
  }
  std::string bytes;
};

class Reader {
 public:
  Reader(std::string_view who, std::string_view bytes) : who_(who), rest_(bytes) {}
  template <class T>
  T get() {
    T out;
    std::memcpy(&out, take(sizeof out).data(), sizeof out);
    return out;
  }
  std::string text() { return std::string(take(get<std::size_t>())); }
  template <class T>
  std::vector<T> all() {
    std::vector<T> out;
    for (auto n = get<std::size_t>(); n > 0; --n) out.push_back(get<T>());
    return out;
  }

 private:
  std::string_view take(std::size_t count) {
    check(count <= rest_.size(), "{}: another process's bytes are cut short", who_);
    const std::string_view out = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return out;
  }
  std::string_view who_, rest_;
};

/// Places point to text that is never gone; there are as many as lines with taps.
const char* kept(std::string text) {
  static auto* const all = new std::set<std::string>;
  return all->insert(std::move(text)).first->c_str();
}

/// What tells a leaf from others, in series and in histograms, on all processes alike.
template <class Entry>
auto leaf_of(const Entry& e) {
  return std::tuple<std::string, std::string, std::string, std::string, std::uint32_t>(
      e.name, e.path, e.transforms, e.place.file, e.place.line);
}

template <class Entry>
void write_leaf(Writer& to, const Entry& e) {
  for (const std::string_view text :
       {std::string_view(e.name), std::string_view(e.path), std::string_view(e.transforms),
        std::string_view(e.place.file), std::string_view(e.place.function)})
    to.add_text(text);
  to.add(e.place.line);
}
template <class Entry>
void read_leaf(Reader& from, Entry& e) {
  e.name = from.text();
  e.path = from.text();
  e.transforms = from.text();
  e.place.file = kept(from.text());
  e.place.function = kept(from.text());
  e.place.line = from.get<std::uint32_t>();
  e.device = -1;
}

void write(Writer& to, const listen::Series& s) {
  to.add(s.firings);
  to.add(s.last);
  to.add(s.all);
  to.add_all(s.points);
}
void read(Reader& from, listen::Series& s) {
  s.firings = from.get<std::uint64_t>();
  s.last = from.get<listen::Summary>();
  s.all = from.get<listen::Summary>();
  s.points = from.all<listen::Series::Point>();
}

void write(Writer& to, const Histogrammed& h) {
  to.add(h.from);
  to.add(h.to);
  to.add(h.nan);
  to.add(h.inf);
  to.add_all(h.bins);
}
void read(Reader& from, Histogrammed& h) {
  h.from = from.get<double>();
  h.to = from.get<double>();
  h.nan = from.get<std::uint64_t>();
  h.inf = from.get<std::uint64_t>();
  h.bins = from.all<std::uint64_t>();
}

void write(Writer& to, const Seen::Times& t) {
  to.add(t.seconds);
  to.add(t.totals.size());
  for (const timeline::Total& total : t.totals) {
    to.add_text(total.name);
    to.add(total.kind);
    to.add(total.count);
    to.add(total.seconds);
    to.add(total.longest);
  }
}
void read(Reader& from, Seen::Times& t) {
  t.seconds = from.get<double>();
  t.totals.resize(from.get<std::size_t>());
  for (timeline::Total& total : t.totals) {
    total.name = from.text();
    total.kind = from.get<timeline::Kind>();
    total.count = from.get<std::uint64_t>();
    total.seconds = from.get<double>();
    total.longest = from.get<double>();
  }
}

/// Of points those that both have: each is then of the same firing everywhere.
void merge(listen::Series& into, const listen::Series& from) {
  into.firings += from.firings;
  add(into.last, from.last);
  add(into.all, from.all);
  std::erase_if(into.points, [&](listen::Series::Point& p) {
    const auto same =
        std::ranges::lower_bound(from.points, p.firing, {}, &listen::Series::Point::firing);
    if (same == from.points.end() || same->firing != p.firing) return true;
    add(p.summary, same->summary);
    return false;
  });
}

void merge(Histogrammed& into, const Histogrammed& from) {
  into.nan += from.nan;
  into.inf += from.inf;
  if (from.bins.empty()) return;
  if (into.bins.empty()) {
    into.from = from.from;
    into.to = from.to;
    into.bins = from.bins;
    return;
  }
  const double low = std::min(into.from, from.from), high = std::max(into.to, from.to);
  const std::size_t bins = into.bins.size();
  into.bins = spread(into, low, high, bins);
  const std::vector<std::uint64_t> more = spread(from, low, high, bins);
  for (std::size_t i = 0; i < bins; ++i) into.bins[i] += more[i];
  into.from = low;
  into.to = high;
}

template <class Entry>
void write_all(Writer& to, const std::vector<Entry>& entries) {
  to.add(entries.size());
  std::map<std::pair<decltype(leaf_of(entries[0])), int>, std::uint64_t> before;
  for (const Entry& e : entries) {
    to.add(before[{leaf_of(e), e.device}]++);
    write_leaf(to, e);
    write(to, e);
  }
}

/// What has been read of one kind, with which one it is of those that look alike.
template <class Entry>
struct Merged {
  std::vector<Entry> entries;
  std::map<std::pair<decltype(leaf_of(std::declval<Entry>())), std::uint64_t>, std::size_t> where;

  void read_all(Reader& from) {
    for (auto n = from.get<std::size_t>(); n > 0; --n) {
      const auto which = from.get<std::uint64_t>();
      Entry e;
      read_leaf(from, e);
      read(from, e);
      const auto [found, is_new] = where.try_emplace({leaf_of(e), which}, entries.size());
      if (is_new)
        entries.push_back(std::move(e));
      else
        merge(entries[found->second], e);
    }
  }
};

}  // namespace

// An element lies anywhere in its bin, so a bin across an edge is shared out by its parts; what is
// rounded at one edge is counted at the next.
std::vector<std::uint64_t> spread(const Histogrammed& h, double low, double high,
                                  std::size_t bins) {
  std::vector<std::uint64_t> out(bins, 0);
  const auto own = static_cast<double>(h.bins.size());
  const double width = h.to / own - h.from / own;
  std::size_t passed = 0;  // bins of h that lie below the edge
  std::uint64_t below = 0, given = 0;
  for (std::size_t i = 0; i < bins; ++i) {
    const double part = static_cast<double>(i + 1) / static_cast<double>(bins);
    const double edge = i + 1 == bins ? high : low * (1 - part) + high * part;
    double at = edge >= h.to ? own : 0;  // the edge, in bins of h
    if (edge > h.from && edge < h.to && width > 0) {
      at = (edge - h.from) / width;
      if (!std::isfinite(edge - h.from)) at = (edge / 2 - h.from / 2) / (width / 2);
      at = std::min(at, own);
    }
    while (passed < h.bins.size() && at >= static_cast<double>(passed + 1))
      below += h.bins[passed++];
    double here = 0;  // of the bin that the edge cuts
    if (passed < h.bins.size())
      here = static_cast<double>(h.bins[passed]) * std::max(at - static_cast<double>(passed), 0.0);
    const std::uint64_t up_to =
        std::max(given, below + static_cast<std::uint64_t>(std::llround(here)));
    out[i] = up_to - given;
    given = up_to;
  }
  return out;
}

Seen of_all(const std::string& who, const Seen& mine, std::chrono::milliseconds limit) {
  Writer writer;
  write_all(writer, mine.series);
  write_all(writer, mine.histograms);
  writer.add(mine.times.size());
  for (const Seen::Times& t : mine.times) write(writer, t);

  Merged<listen::Series> series;
  Merged<Histogrammed> histograms;
  Seen out;
  for (const std::string& bytes : clusters::gather_on_first(who, writer.bytes, limit)) {
    Reader reader(who, bytes);
    series.read_all(reader);
    histograms.read_all(reader);
    for (auto n = reader.get<std::size_t>(); n > 0; --n) read(reader, out.times.emplace_back());
  }
  out.series = std::move(series.entries);
  out.histograms = std::move(histograms.entries);
  return out;
}

}  // namespace postern::internal::host
