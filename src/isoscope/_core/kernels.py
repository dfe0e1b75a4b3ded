"""Inner loops over rows and tiles, which numba compiles on first use and caches on disk.

The functions release the GIL and use no Python objects. `pairs` and `sketch` call them on tiles from a pool of ordinary
threads, so numba starts no threads of its own.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_FASTMATH = {"reassoc", "contract"}  # sums may be reordered into vector lanes; NaN and infinity keep their meaning


@njit(cache=True, nogil=True, fastmath=_FASTMATH, inline="never")
def squared_distance(a: np.ndarray, b: np.ndarray) -> float:
    """Return ‖a−b‖², computed from coordinate differences to avoid the cancellation in ‖a‖²+‖b‖²−2ab."""
    total = 0.0
    for p in range(a.shape[0]):
        step = np.float64(a[p]) - np.float64(b[p])
        total += step * step
    return total


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def pairwise_squared_distances(X, out):  # type: ignore[no-untyped-def]
    """Compute all squared distances between a few rows from coordinate differences, without starting BLAS threads."""
    n, d = X.shape
    for i in range(n):
        out[i, i] = 0
        for j in range(i):
            total = out[i, i]
            for p in range(d):
                step = X[i, p] - X[j, p]
                total += step * step
            out[i, j] = out[j, i] = total


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def products_to_squared_distances(products, left, right, left_norms, right_norms, near):  # type: ignore[no-untyped-def]
    """Convert a tile of inner products into squared distances, in place.

    If two points are so close that the three terms cancel (to less than `near` times their size), use the difference of
    the raw rows `left` and `right` instead, because the products were computed from centered rows, which are rounded.
    """
    rows, columns = products.shape
    for i in range(rows):
        norm = left_norms[i]
        close = 0
        for j in range(columns):
            size = norm + right_norms[j]
            value = size - 2 * products[i, j]
            products[i, j] = value
            close += value <= near * size
        if close:
            for j in range(columns):
                if products[i, j] <= near * (norm + right_norms[j]):
                    products[i, j] = squared_distance(left[i], right[j])


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def _sum(row):  # type: ignore[no-untyped-def]
    """Return the sum of a row, in a separate loop that the compiler can vectorize."""
    total = row[0] * 0
    for j in range(row.shape[0]):
        total += row[j]
    return total


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def add_cluster_distances(squared, row_starts, column_starts, by_row, by_column):  # type: ignore[no-untyped-def]
    """Add a tile's distances to the sums of each row and each column, separately for each cluster.

    Rows and columns are sorted by cluster; cluster c of this tile lies at starts[c]:starts[c + 1].
    """
    for a in range(row_starts.shape[0] - 1):
        column = by_column[a]
        for i in range(row_starts[a], row_starts[a + 1]):
            row = squared[i]
            for j in range(row.shape[0]):
                distance = np.sqrt(row[j])
                row[j] = distance
                column[j] += distance
            for b in range(column_starts.shape[0] - 1):
                by_row[i, b] += _sum(row[column_starts[b] : column_starts[b + 1]])


@njit(cache=True, nogil=True)
def _sift(distances, indices, value, index):  # type: ignore[no-untyped-def]
    """Replace the root of a heap, which is its largest pair (distance, index)."""
    k = distances.shape[0]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= k:
            break
        other = child + 1
        if other < k and (
            distances[other] > distances[child]
            or (distances[other] == distances[child] and indices[other] > indices[child])
        ):
            child = other
        if distances[child] < value or (distances[child] == value and indices[child] < index):
            break
        distances[at] = distances[child]
        indices[at] = indices[child]
        at = child
    distances[at] = value
    indices[at] = index


@njit(cache=True, nogil=True)
def keep_nearest(squared, own, first_column, distances, indices):  # type: ignore[no-untyped-def]
    """Update each row's heap of its k nearest points with the points in a tile's columns; row i is point own[i]."""
    for i in range(squared.shape[0]):
        worst, worst_index = distances[i, 0], indices[i, 0]
        for j in range(squared.shape[1]):
            value = squared[i, j]
            if value <= worst:
                index = first_column + j
                if index != own[i] and (value < worst or index < worst_index):
                    _sift(distances[i], indices[i], value, index)
                    worst, worst_index = distances[i, 0], indices[i, 0]


@njit(cache=True, nogil=True)
def _mark_candidates(row, row_offset, column_offsets, row_worst, column_worst, marks):  # type: ignore[no-untyped-def]
    """Mark the columns that may enter a heap, in a separate loop that the compiler can vectorize."""
    for j in range(row.shape[0]):
        marks[j] = (column_offsets[j] - row[j] <= row_worst) | (row_offset - row[j] <= column_worst[j])


@njit(cache=True, nogil=True)
def keep_most_similar(  # type: ignore[no-untyped-def]
    products, row_offsets, column_offsets, first_row, first_column, by_row, row_indices, by_column, column_indices, own
):
    """Update the heaps of the most similar points of a tile's rows and, if there are any, of its columns.

    The distance of column j from row i is column_offsets[j] − products[i, j], and that of row i from column j is
    row_offsets[i] − products[i, j]. If `own`, a point is not compared with itself.
    """
    columns = products.shape[1]
    marks = np.zeros(-(-columns // 8) * 8, np.bool_)
    groups = marks.view(np.uint64)  # most groups of eight columns have no mark and are skipped
    column_worst = np.full(columns, -np.inf, products.dtype)
    for j in range(by_column.shape[0]):
        column_worst[j] = by_column[j, 0]
    for i in range(products.shape[0]):
        row = products[i]
        _mark_candidates(row, row_offsets[i], column_offsets, by_row[i, 0], column_worst, marks[:columns])
        for group in range(groups.shape[0]):
            if groups[group] == 0:
                continue
            for j in range(8 * group, min(8 * group + 8, columns)):
                at_row, at_column = first_row + i, first_column + j
                if not marks[j] or (own and at_row == at_column):
                    continue
                value = column_offsets[j] - row[j]
                if value < by_row[i, 0] or (value == by_row[i, 0] and at_column < row_indices[i, 0]):
                    _sift(by_row[i], row_indices[i], value, at_column)
                if by_column.shape[0] == 0:
                    continue
                value = row_offsets[i] - row[j]
                if value < column_worst[j] or (value == column_worst[j] and at_row < column_indices[j, 0]):
                    _sift(by_column[j], column_indices[j], value, at_row)
                    column_worst[j] = by_column[j, 0]


@njit(cache=True, nogil=True)
def neighbor_distances(X, rows, distances, indices):  # type: ignore[no-untyped-def]
    """Compute the squared distances from the given rows to their neighbors, from coordinate differences."""
    for i in range(rows.shape[0]):
        for j in range(indices.shape[1]):
            distances[i, j] = squared_distance(X[rows[i]], X[indices[i, j]])


@njit(cache=True, nogil=True)
def prim_tree(squared, edges, weights):  # type: ignore[no-untyped-def]
    """Compute the minimum spanning tree of a complete graph, by Prim's algorithm."""
    n = squared.shape[0]
    parent = np.zeros(n, np.int64)
    key = np.empty(n, squared.dtype)
    inside = np.zeros(n, np.bool_)
    inside[0] = True
    for j in range(n):
        key[j] = squared[0, j]
    for step in range(n - 1):
        best = -1
        least = key[0]
        for j in range(n):
            if not inside[j] and (best < 0 or key[j] < least):
                best, least = j, key[j]
        edges[step, 0], edges[step, 1], weights[step] = parent[best], best, least
        inside[best] = True
        row = squared[best]
        for j in range(n):
            if not inside[j] and row[j] < key[j]:
                key[j] = row[j]
                parent[j] = best


@njit(cache=True, nogil=True)
def merge_block_trees(  # type: ignore[no-untyped-def]
    squared, transposed, left_tree, right_tree, left_weights, right_weights, edges, weights
):
    """Compute the minimum spanning tree of two blocks, from all edges between them and the tree of each block.

    An edge inside a block that is not in the block's tree is in no larger tree either. Rows are nodes 0…m−1, columns
    are nodes m…m+p−1; each tree numbers the nodes of its block from 0. The algorithm is Prim's.
    """
    m, p = squared.shape
    n = m + p
    starts = np.zeros(n + 1, np.int64)
    for e in range(left_tree.shape[0]):
        starts[left_tree[e, 0] + 1] += 1
        starts[left_tree[e, 1] + 1] += 1
    for e in range(right_tree.shape[0]):
        starts[m + right_tree[e, 0] + 1] += 1
        starts[m + right_tree[e, 1] + 1] += 1
    for v in range(n):
        starts[v + 1] += starts[v]
    fill = starts[:-1].copy()
    others = np.empty(starts[n], np.int64)
    lengths = np.empty(starts[n], squared.dtype)
    for e in range(left_tree.shape[0] + right_tree.shape[0]):
        if e < left_tree.shape[0]:
            a, b, w = left_tree[e, 0], left_tree[e, 1], left_weights[e]
        else:
            f = e - left_tree.shape[0]
            a, b, w = m + right_tree[f, 0], m + right_tree[f, 1], right_weights[f]
        others[fill[a]], lengths[fill[a]] = b, w
        fill[a] += 1
        others[fill[b]], lengths[fill[b]] = a, w
        fill[b] += 1

    key = np.full(n, np.inf, squared.dtype)
    parent = np.zeros(n, np.int64)
    inside = np.zeros(n, np.bool_)
    current = 0
    inside[0] = True
    for step in range(n - 1):
        first = m if current < m else 0
        row = squared[current] if current < m else transposed[current - m]
        for j in range(row.shape[0]):
            if row[j] < key[first + j] and not inside[first + j]:
                key[first + j] = row[j]
                parent[first + j] = current
        for e in range(starts[current], starts[current + 1]):
            v = others[e]
            if lengths[e] < key[v] and not inside[v]:
                key[v] = lengths[e]
                parent[v] = current
        best = -1
        least = key[0]
        for v in range(n):
            if not inside[v] and (best < 0 or key[v] < least):
                best, least = v, key[v]
        edges[step, 0], edges[step, 1], weights[step] = parent[best], best, least
        inside[best] = True
        current = best


@njit(cache=True, nogil=True)
def _root(parent, v):  # type: ignore[no-untyped-def]
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


@njit(cache=True, nogil=True)
def kruskal_tree(edges, order, n, kept):  # type: ignore[no-untyped-def]
    """Keep the edges that join two trees (Kruskal's algorithm), given edges in order of length; return their number."""
    parent = np.arange(n)
    count = 0
    for e in order:
        a, b = _root(parent, edges[e, 0]), _root(parent, edges[e, 1])
        if a != b:
            parent[a] = b
            kept[count] = e
            count += 1
            if count == n - 1:
                break
    return count


@njit(cache=True, nogil=True)
def squared_edge_lengths(X, edges, out):  # type: ignore[no-untyped-def]
    """Compute the squared length of each edge from coordinate differences."""
    for e in range(edges.shape[0]):
        out[e] = squared_distance(X[edges[e, 0]], X[edges[e, 1]])


@njit(cache=True, nogil=True)
def count_features(bars, printed):  # type: ignore[no-untyped-def]
    """Return how many of the sorted, positive bars are features by the method of Atienza et al.; see `select_bars`.

    T is the longest bar and r the shortest. In each round, the algorithm's list x holds the sorted bars 1…m−2, then r,
    then T. Suffix sums of x and x·log x give the entropy of every suffix.
    """
    n = bars.shape[0]
    longest, shortest = bars[0], bars[n - 1]
    alpha = shortest / longest
    if n < 4:
        return n
    x = np.empty(n)
    x[: n - 1] = bars[1:]
    x[n - 1] = longest
    m = n
    while True:
        suffix, entropy_sum = np.empty(m + 1), np.empty(m + 1)
        suffix[m] = entropy_sum[m] = 0.0
        for i in range(m - 1, -1, -1):
            suffix[i] = suffix[i + 1] + x[i]
            entropy_sum[i] = entropy_sum[i + 1] + x[i] * np.log(x[i])
        quota = np.ceil(alpha * m * (alpha - 1 - np.log(alpha)) / (alpha - 1) ** 2)
        before = suffix[0]
        last = m - 2 if printed else m - 3
        i = 1
        while True:
            # P + i·P/e^E with E = log P − Σx·log x / P
            after = suffix[i] + i * np.exp(entropy_sum[i] / suffix[i])
            ratio = before / after
            if (ratio > 1 if printed else ratio < 1) or i >= last:
                break
            before = after
            i += 1
        if not (quota <= i if printed else quota < i) or i + 2 >= m:
            return i + 1
        x[i] = shortest
        x[i + 1] = longest
        m = i + 2
        if m < 4:
            return i + 1


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def center_and_hash_rows(X, pivot, keys, centered, norms, squares, hashes, unit_sum, unit_squares):  # type: ignore[no-untyped-def]
    """For each row of a tile, compute y = x − pivot, ‖x‖, ‖y‖² and a hash of the float64 values.

    A row that is not finite gets the norm NaN and y = 0. If a row's squares are near the limits of float64, its unit
    vector is added to Σu and Σu² here; `add_row_sums` adds the others.
    """
    n, d = X.shape
    for i in range(n):
        size = 0.0
        for p in range(d):
            value = np.float64(X[i, p])
            size += value * value
        norms[i] = np.sqrt(size)
        if not 1e-280 < size < 1e280:
            norms[i] = _extreme_row(X[i], unit_sum, unit_squares)
        squares[i] = 0.0
        hashes[i] = 0
        if np.isnan(norms[i]):
            for p in range(d):
                centered[i, p] = 0.0
            continue
        square = 0.0
        for p in range(d):
            y = np.float64(X[i, p]) - pivot[p]
            centered[i, p] = y
            square += y * y
        squares[i] = square
        code = np.uint64(0)
        for p in range(d):
            word = np.float64(np.float64(X[i, p]) + 0.0).view(np.uint64)  # + 0.0 makes −0 equal to 0
            word ^= word >> np.uint64(32)
            word *= keys[p]
            word ^= word >> np.uint64(32)
            word *= np.uint64(0x9E3779B97F4A7C15)
            code += word ^ (word >> np.uint64(29))
        hashes[i] = _mix(code)


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def add_row_sums(X, centered, norms, squares, total, cubic, unit_sum, unit_squares):  # type: ignore[no-untyped-def]
    """Add the rows of a tile to Σy, Σ‖y‖²y, Σu and Σu², four rows at a time to save memory accesses."""
    n, d = X.shape
    factors = np.empty(n)
    for i in range(n):
        factors[i] = 1 / norms[i] if 1e-140 < norms[i] < 1e140 else 0.0
    full = n - n % 4
    for i in range(0, full, 4):
        f0, f1, f2, f3 = factors[i], factors[i + 1], factors[i + 2], factors[i + 3]
        r0, r1, r2, r3 = squares[i], squares[i + 1], squares[i + 2], squares[i + 3]
        for p in range(d):
            y0, y1, y2, y3 = centered[i, p], centered[i + 1, p], centered[i + 2, p], centered[i + 3, p]
            total[p] += (y0 + y1) + (y2 + y3)
            cubic[p] += (r0 * y0 + r1 * y1) + (r2 * y2 + r3 * y3)
        for p in range(d):
            u0, u1 = np.float64(X[i, p]) * f0, np.float64(X[i + 1, p]) * f1
            u2, u3 = np.float64(X[i + 2, p]) * f2, np.float64(X[i + 3, p]) * f3
            unit_sum[p] += (u0 + u1) + (u2 + u3)
            unit_squares[p] += (u0 * u0 + u1 * u1) + (u2 * u2 + u3 * u3)
    for i in range(full, n):
        for p in range(d):
            u = np.float64(X[i, p]) * factors[i]
            total[p] += centered[i, p]
            cubic[p] += squares[i] * centered[i, p]
            unit_sum[p] += u
            unit_squares[p] += u * u


@njit(cache=True, nogil=True)
def _extreme_row(x, unit_sum, unit_squares):  # type: ignore[no-untyped-def]
    """Add the unit vector of a row whose squares overflow or underflow; return its norm, or NaN if it is not finite."""
    scale = _safe_scale(x)
    size = 0.0
    for p in range(x.shape[0]):
        size += (x[p] * scale) ** 2
    norm = np.sqrt(size)
    if norm > 0 and not 1e-140 < norm / scale < 1e140:
        for p in range(x.shape[0]):
            u = x[p] * scale / norm
            unit_sum[p] += u
            unit_squares[p] += u * u
    return norm / scale


@njit(cache=True, nogil=True)
def add_unit_vectors(X, codes, sums, counts, lengths):  # type: ignore[no-untyped-def]
    """Add the unit vector of each finite row to the sum of its type, and count the row."""
    for i in range(X.shape[0]):
        scale = _safe_scale(X[i])
        if np.isnan(scale):
            continue
        size = 0.0
        for p in range(X.shape[1]):
            size += (X[i, p] * scale) ** 2
        code = codes[i]
        counts[code] += 1
        if size > 0:
            factor = scale / np.sqrt(size)
            lengths[code] += 1.0
            for p in range(X.shape[1]):
                sums[code, p] += X[i, p] * factor


@njit(cache=True, nogil=True)
def _safe_scale(x):  # type: ignore[no-untyped-def]
    """Return a power of two that scales the largest value of x to about 1, or NaN if a value is not finite."""
    largest = 0.0
    for p in range(x.shape[0]):
        if not np.isfinite(x[p]):
            return np.nan
        largest = max(largest, abs(np.float64(x[p])))
    if largest == 0:
        return 1.0
    return 2.0 ** min(1000.0, max(-1000.0, -np.floor(np.log2(largest))))


@njit(cache=True, nogil=True)
def _mix(code):  # type: ignore[no-untyped-def]
    """Mix all 64 bits of a sum with the splitmix64 finalizer."""
    code ^= code >> np.uint64(30)
    code *= np.uint64(0xBF58476D1CE4E5B9)
    code ^= code >> np.uint64(27)
    code *= np.uint64(0x94D049BB133111EB)
    return code ^ (code >> np.uint64(31))


@njit(cache=True, nogil=True)
def count_cosines(bits, shift, first, diagonal, counts, marks, squared, limits, beyond):  # type: ignore[no-untyped-def]
    """Count the squared distances of a tile in the bins of a `CosineHistogram`.

    `bits` views `squared` as integers, whose leading bits are the number of the bin. In a bin that contains the limit
    of a cosine, also count the pairs beyond this limit. In a tile on the diagonal, count only the entries above it.
    """
    last = counts.shape[0] - 1
    for i in range(squared.shape[0]):
        for j in range(i + 1 if diagonal else 0, squared.shape[1]):
            at = min(max((bits[i, j] >> shift) - first, 0), last)
            counts[at] += 1
            mark = marks[at]
            if mark < limits.shape[0] and squared[i, j] > limits[mark]:
                beyond[mark] += 1
