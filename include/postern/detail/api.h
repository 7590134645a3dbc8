/* What libpostern.so exports; everything else is hidden. On each function that a public header
 * declares and the library defines, and on the exceptions, which cross the boundary by their type.
 * Also in C. */
#ifndef POSTERN_DETAIL_API_H
#define POSTERN_DETAIL_API_H

#define POSTERN_API __attribute__((visibility("default")))

#endif
