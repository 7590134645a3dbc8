// Statistics of all processes as one. Their series travel as bytes: all run the same program.
#include <algorithm>
#include <cstring>
#include <set>
#include <type_traits>

#include "cluster/gather.h"
#include "core/check.h"
#include "listen/summary.h"

namespace postern::listen {

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
  std::string bytes;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  bool is_at_end() const { return rest_.empty(); }
  template <class T>
  T get() {
    T out;
    std::memcpy(&out, take(sizeof out).data(), sizeof out);
    return out;
  }
  std::string text() { return std::string(take(get<std::size_t>())); }

 private:
  std::string_view take(std::size_t count) {
    check(count <= rest_.size(), "stats: another process's are cut short");
    const std::string_view out = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return out;
  }
  std::string_view rest_;
};

/// Places point to text that is never gone; there are as many as lines with taps.
const char* kept(std::string text) {
  static auto* const all = new std::set<std::string>;
  return all->insert(std::move(text)).first->c_str();
}

void write(Writer& to, const Series& s) {
  for (const std::string_view text :
       {std::string_view(s.name), std::string_view(s.path), std::string_view(s.transforms),
        std::string_view(s.place.file), std::string_view(s.place.function)})
    to.add_text(text);
  to.add(s.place.line);
  to.add(s.firings);
  to.add(s.last);
  to.add(s.all);
  to.add(s.points.size());
  for (const Series::Point& p : s.points) to.add(p);
}

Series series_from(Reader& from) {
  Series s;
  s.name = from.text();
  s.path = from.text();
  s.transforms = from.text();
  s.place.file = kept(from.text());
  s.place.function = kept(from.text());
  s.place.line = from.get<std::uint32_t>();
  s.firings = from.get<std::uint64_t>();
  s.last = from.get<Summary>();
  s.all = from.get<Summary>();
  for (auto n = from.get<std::size_t>(); n > 0; --n) s.points.push_back(from.get<Series::Point>());
  return s;
}

/// Of points those that both have: each is then of the same firing everywhere.
void merge(Series& into, const Series& from) {
  into.firings += from.firings;
  host::add(into.last, from.last);
  host::add(into.all, from.all);
  std::erase_if(into.points, [&](Series::Point& p) {
    const auto same = std::ranges::lower_bound(from.points, p.firing, {}, &Series::Point::firing);
    if (same == from.points.end() || same->firing != p.firing) return true;
    host::add(p.summary, same->summary);
    return false;
  });
}

}  // namespace

std::vector<Series> Stats::merged(std::chrono::milliseconds limit) const {
  Writer mine;
  for (const Series& s : series()) write(mine, s);
  std::vector<Series> out;
  for (const std::string& bytes : clusters::gather_on_first("stats().merged()", mine.bytes, limit))
    for (Reader reader(bytes); !reader.is_at_end();) {
      Series s = series_from(reader);
      s.device = -1;
      const auto same = std::ranges::find_if(out, [&](const Series& o) {
        return o.name == s.name && o.path == s.path && o.transforms == s.transforms &&
               o.place.line == s.place.line && o.place.file == s.place.file;
      });
      if (same == out.end())
        out.push_back(std::move(s));
      else
        merge(*same, s);
    }
  return out;
}

}  // namespace postern::listen
